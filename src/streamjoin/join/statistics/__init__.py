"""Statistics that a join measures while it runs: selectivities, lifetimes, forecasts, constraints."""
