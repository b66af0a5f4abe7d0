"""Tests of lakelog/client."""
