"""The topics of a root, and the logs that lakelog keeps for itself."""
