"""Whose credential it is: passwords, API keys, certificates and tokens."""
