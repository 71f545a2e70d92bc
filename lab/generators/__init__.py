"""Seeded generators of data that only the papers use."""
