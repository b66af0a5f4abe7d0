"""Tests of lakelog/spark/sink."""
