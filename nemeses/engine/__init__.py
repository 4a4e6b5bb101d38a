"""What runs nemeses: the schedule, faults under way, their undoing, and what they may hold."""
