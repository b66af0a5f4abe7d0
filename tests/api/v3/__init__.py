"""Tests of api/v3."""
