"""Who consumes what: group membership, assignment and committed offsets."""
