"""Tests of log_tables."""
