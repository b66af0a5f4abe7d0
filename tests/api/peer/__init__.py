"""Tests of api/peer."""
