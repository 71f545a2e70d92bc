"""What a join measures while it works: selectivities, lifetimes, forecasts, the constraint monitor."""
