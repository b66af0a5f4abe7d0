"""Spark's own source and sink of Kafka at the Kafka listener."""
