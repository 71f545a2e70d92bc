"""Joins without one common key: a graph of equal columns becomes a tree of operators."""
