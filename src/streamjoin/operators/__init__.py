"""The joins, their rules and their strategies; nothing here knows how it is run."""
