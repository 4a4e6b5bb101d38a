"""What everything else stands on: errors, waits, the test's specification, contracts, text and files."""
