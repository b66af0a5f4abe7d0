"""Changes to a root: topics, access, retention of what lakelog keeps for itself, its sweep."""
