"""The table over a whole topic: a fold of the partitions' tables, and never a second truth."""
