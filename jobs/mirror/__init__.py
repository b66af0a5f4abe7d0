"""A copy of a Kafka cluster's topics, at the same offsets (docs/mirror.md)."""
