"""Tests of api/wire."""
