"""Tests of log_tables/store."""
