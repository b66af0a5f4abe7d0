"""Transactions of Kafka's clients: from InitProducerId with a `transactional.id` to EndTxn."""
