"""Decisions about who may do what."""
