"""Checkpoint tools, for queries that are stopped or running elsewhere: state inspection and rebucketing."""
