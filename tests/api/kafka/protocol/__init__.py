"""Tests of api/kafka/protocol."""
