"""Starts, follows, answers, resumes and cancels runs of a set of flows. It knows no HTTP; begin with `flow_service`."""
