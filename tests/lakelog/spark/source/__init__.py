"""Tests of lakelog/spark/source."""
