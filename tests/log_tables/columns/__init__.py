"""Tests of log_tables/columns."""
