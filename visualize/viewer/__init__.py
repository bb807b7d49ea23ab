"""Makes pages about flows and runs: functions from data to HTML text. It serves nothing and keeps no state."""
