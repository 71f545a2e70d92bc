"""The papers' algorithms as printed, tuple by tuple: what the product is compared with."""
