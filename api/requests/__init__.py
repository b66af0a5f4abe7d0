"""What every door shares: bodies, topics by name, errors, forwarding."""
