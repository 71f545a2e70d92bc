"""The semi-stream join: a stream enriched from a table that fits in no memory (MESHJOIN, SSBJ)."""
