"""Building blocks of the tests: gateways, clients, faults, models, checkers."""
