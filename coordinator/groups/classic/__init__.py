"""Classic groups, as Kafka's clients form them, without I/O."""
