"""Tests of lakelog."""
