"""Contenders of a measurement: the protocol that all of them speak, and the program for those on Spark."""
