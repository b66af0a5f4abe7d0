"""Tests of lakelog/testing."""
