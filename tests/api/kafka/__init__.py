"""Kafka's own clients over its wire protocol."""
