"""Starts runs at the times that schedules of the project file name."""
