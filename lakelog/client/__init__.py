"""Python programs: administration, producers, consumers, transactions."""

DEFAULT_URL = "http://127.0.0.1:8082"
"""Where a gateway listens unless it is configured otherwise."""
