"""The process that opens the doors: starts, bounds connections, stops."""
