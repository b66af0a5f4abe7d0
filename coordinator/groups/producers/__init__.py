"""Transactional ids of Kafka's clients: their coordinator, and what is staged until EndTxn."""
