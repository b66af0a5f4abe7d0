"""A root as a whole: checked, copied, adopted."""
