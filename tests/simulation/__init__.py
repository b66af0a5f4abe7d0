"""A cluster as one thread that a seed runs: see docs/testing.md."""
