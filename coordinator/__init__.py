"""Leadership of partitions, and consumer groups: members, assignment, offsets. FastAPI is not known here."""
