"""What must hold of the repository itself: documents, examples, public names."""
