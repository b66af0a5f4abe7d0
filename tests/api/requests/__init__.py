"""Tests of api/requests."""
