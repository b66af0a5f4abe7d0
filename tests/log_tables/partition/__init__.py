"""Tests of log_tables/partition."""
