"""A long experiment as parts: figures, the journal of what is finished, and the page to read."""
