"""The demos: what the library does, shown on seeded data."""
