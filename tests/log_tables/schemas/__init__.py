"""Tests of log_tables/schemas."""
