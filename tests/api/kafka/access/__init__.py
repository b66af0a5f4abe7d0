"""Topics and settings over Kafka's protocol."""
