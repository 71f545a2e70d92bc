"""Decisions that the operator leaves open, one file a seam, its protocol on top."""
