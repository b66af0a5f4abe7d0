"""A standby that follows a root, file by file (docs/replicate.md)."""
