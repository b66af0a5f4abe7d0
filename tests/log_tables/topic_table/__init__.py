"""Tests of log_tables/table."""
