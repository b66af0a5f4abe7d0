"""Kafka's APIs of ACLs, quotas and users."""
