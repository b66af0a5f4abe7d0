"""Connections of Kafka's clients: bytes in, answers out, and their end."""
