"""Conditions of a join (`where=`): SQL text and pyarrow expressions, split and read for what they say."""
