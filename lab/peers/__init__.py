"""This library and other engines at the same work, from the same files, in one run."""
