"""Tests of log_tables/segments."""
