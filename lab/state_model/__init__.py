"""What a join stores, beside what is predicted and what is needed; without Spark."""
