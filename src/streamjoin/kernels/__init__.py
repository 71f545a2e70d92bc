"""Arrays in, index arrays out: match, window, assemble. No state, no clock."""
