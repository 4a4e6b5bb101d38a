"""What all other packages use: errors, waits, the test's specification, contracts, text and files."""
