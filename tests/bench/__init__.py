"""Parts of the bench that judge: what they find must be right."""
