"""From a stream and tables to semi-stream joins, with reasons."""
