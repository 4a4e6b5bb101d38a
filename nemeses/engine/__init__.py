"""Runs nemeses: the schedule, live faults, their undo, and their reservations."""
