"""What tests are made of: gateways, clients, faults, models, checkers."""
