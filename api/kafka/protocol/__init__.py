"""Kafka's messages as bytes and as Python objects. It knows nothing of lakelog."""
