"""Whole systems: several processes, kills, power cuts, copies, and the history of what clients saw."""
