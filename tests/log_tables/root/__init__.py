"""Tests of log_tables/root."""
