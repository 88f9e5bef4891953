"""Runner of the test suite: tiers and parts, several pytest processes at a time, one summary at the end."""
