"""What a join holds: runs, sides, promises, the manifest, and their form as bytes."""
