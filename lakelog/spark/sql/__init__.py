"""Topics as SQL views in Spark."""
