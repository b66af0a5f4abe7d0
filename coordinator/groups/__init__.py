"""Consumer groups: members, offsets, transactions."""
