"""The seeded generators as Spark sources."""
