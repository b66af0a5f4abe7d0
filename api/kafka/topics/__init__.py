"""The APIs about topics, their partitions, and settings."""
