"""Tests of coordinator/brokers."""
