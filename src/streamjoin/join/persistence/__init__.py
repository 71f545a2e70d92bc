"""The state of a join outside its process: snapshot, rebucketing, inspection."""
