"""Facts that pages show: gateways, the commits and segments of tables, problems."""
