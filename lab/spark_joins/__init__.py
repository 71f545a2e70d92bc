"""Joins on Spark beside its own, in the cases that the peers do not measure."""
