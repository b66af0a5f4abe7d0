"""Who consumes what: members, offsets, transactions."""
