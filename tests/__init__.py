"""Tests: real stores in temporary directories, real servers on free ports, a real Spark session."""
