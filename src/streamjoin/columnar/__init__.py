"""Rows as Arrow columns, and kernels over them: arrays in, index arrays out. No state, no clock."""
