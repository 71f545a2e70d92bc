"""Readers of stored streams: XML streams with punctuation elements (the papers' Convert operator).

A source gives Arrow tables and punctuations in stream order; it imports nothing of joins.
"""
