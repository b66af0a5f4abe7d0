"""Tests of coordinator/groups."""
