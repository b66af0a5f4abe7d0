"""Declared columns: typed columns that are made of the JSON values of a topic."""
