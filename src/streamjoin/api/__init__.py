"""What a user calls: declare streams and tables, join or enrich them, start the result."""
