"""Tests of the listener's connections: frames, requests, answers and their order."""
