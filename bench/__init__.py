"""How fast lakelog is, beside its peers in the same run; results are in docs/benchmarks.md."""
