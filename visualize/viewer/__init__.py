"""Pages about flows and runs: functions from data to HTML text. Nothing here serves, reads a store or keeps state."""
