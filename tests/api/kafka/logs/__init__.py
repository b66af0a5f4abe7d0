"""Appends and fetches over Kafka's protocol."""
