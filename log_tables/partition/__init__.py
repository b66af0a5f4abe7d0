"""A partition: one table, or two with a remote tier, with offsets in order."""
