"""What happens as the work grows."""
