"""Record batches of Kafka."""
