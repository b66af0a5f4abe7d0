"""The Python client: producers, consumers, administration."""
