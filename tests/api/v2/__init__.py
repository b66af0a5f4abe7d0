"""Tests of api/v2."""
