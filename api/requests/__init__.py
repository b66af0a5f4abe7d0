"""Code that all routes share: bodies, topics by name, appending, forwarding."""
