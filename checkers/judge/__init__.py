"""From a stored run to a verdict: runs the checkers and stores what they find."""
