"""Kafka's record batches, of format 2: from producers to the log, and from the log to consumers."""
