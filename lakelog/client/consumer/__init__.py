"""Consuming, alone or in a group, and transactions that commit offsets."""
