"""Runs flows in this process: starts, resumes, forks them, and runs tables of rows."""
