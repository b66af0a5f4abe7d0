"""The HTTP edge: one router file per resource, and one table from domain errors to HTTP."""
