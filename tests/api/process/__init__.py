"""Tests of api/process."""
