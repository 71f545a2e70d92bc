"""What a user declares of data, as frozen values that are checked when they are made."""
