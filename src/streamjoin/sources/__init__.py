"""Where streams come from: readers of stored streams, and seeded generators of the papers' streams.

A source gives Arrow tables and punctuations in stream order; it knows nothing of joins.
"""
