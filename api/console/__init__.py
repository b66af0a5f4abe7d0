"""The console: pages that show what is in the log, and by which it is looked after."""
