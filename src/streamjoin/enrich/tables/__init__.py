"""Where a table is read from: files, SQLite, PostgreSQL."""
