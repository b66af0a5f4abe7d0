"""Who leads which partition, and what gateways ask one another."""
