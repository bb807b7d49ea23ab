"""Exports traces and metrics of runs, read from their journals: recording them costs a run nothing."""
