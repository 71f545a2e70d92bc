"""Seeded generators of the data that the demos and examples join."""
