"""Writing topics from Spark."""
