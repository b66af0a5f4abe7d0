"""Transactions: decided by an append to the log of a group, then applied to each partition."""
