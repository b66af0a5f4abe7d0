"""HTTP instances: positions, long polls, and the refreshes that they share."""
