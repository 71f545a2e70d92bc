"""A checkpoint read and rewritten from outside: inspection and rebucketing."""
