"""Values behind a schema id: how they name their schema, and how they are decoded."""
