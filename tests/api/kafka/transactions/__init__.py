"""Groups over Kafka's protocol."""
