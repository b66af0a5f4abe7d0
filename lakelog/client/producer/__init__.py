"""Producing: batches, what was delivered of them, and requests that are sent again."""
