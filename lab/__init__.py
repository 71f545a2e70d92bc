"""Experiments, benchmarks and demos: what the library does, shown and measured."""
