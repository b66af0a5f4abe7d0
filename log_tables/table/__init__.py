"""A Delta table followed commit by commit."""
