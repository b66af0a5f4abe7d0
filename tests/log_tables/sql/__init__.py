"""Tests of log_tables/sql."""
