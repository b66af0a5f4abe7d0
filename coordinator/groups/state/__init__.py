"""A group as a value, and what an event makes of it. Pure."""
