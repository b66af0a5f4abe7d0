"""Tests of the console, in a browser and without one."""
