"""Tests of the repository itself: documents, examples, public names."""
