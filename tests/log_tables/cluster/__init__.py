"""Tests of log_tables/cluster."""
