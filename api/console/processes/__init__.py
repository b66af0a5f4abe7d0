"""Queries and commands of `lakelog` in processes of their own, so that none holds the gateway."""
