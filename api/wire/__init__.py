"""Bytes of requests and answers: decoded, bounded, encoded."""
