"""How fast lakelog is, beside its peers in the same run. `python -m bench --help`; results in docs/benchmarks.md."""
