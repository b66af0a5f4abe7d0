"""Kafka's ACLs as the permissions of a store, for those who read tables without a gateway."""
