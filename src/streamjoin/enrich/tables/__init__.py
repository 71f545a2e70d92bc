"""Where tables are read from.

    source.py       TableSource, the protocol that every source implements; public as `sj.TableSource`
    files.py        Parquet and Arrow files, Arrow tables in memory; the source that a path means
    sqlite.py       SQLite
    postgresql.py   PostgreSQL
    retries.py      read again a source whose connection was lost
    sql_names.py    names and queries after FROM

A new source is one file with a class that has the five methods of `TableSource`.
"""
