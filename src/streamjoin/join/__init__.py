"""The stream join: one operator for n streams, its rules and its strategies, whatever runs it."""
