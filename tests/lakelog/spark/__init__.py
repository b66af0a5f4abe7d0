"""Tests of lakelog/spark."""
