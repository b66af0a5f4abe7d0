"""A client of the listener: its name, what it may do, its errors, and the door through which it asks."""
