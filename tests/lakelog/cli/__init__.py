"""Tests of lakelog/cli."""
