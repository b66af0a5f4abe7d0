"""What a client may do, and what its ids are."""
