"""From declarations and a goal to an operator, with reasons."""
