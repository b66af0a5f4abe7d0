"""Tests of a client of the listener: its rights, its ids, its errors."""
