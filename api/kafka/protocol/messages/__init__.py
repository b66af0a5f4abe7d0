"""Kafka's messages, described in the notation of `api/kafka/protocol/notation.py`: a file for each family."""
