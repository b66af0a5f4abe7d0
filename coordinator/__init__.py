"""Who consumes what: group membership, assignment, committed offsets. Nothing here knows of HTTP."""
