"""Streaming sources for Spark: XML streams, and the ticks that drive an enriched stream."""
