"""The door for Kafka's clients: Kafka's wire protocol over the same log, groups and access."""
