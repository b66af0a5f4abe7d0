"""Tests of lakelog/spark/sql."""
