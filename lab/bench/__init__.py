"""The regression guard."""
