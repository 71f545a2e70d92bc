"""Run in this process, without a JVM: a join, a chain of joins, an enriched stream."""
