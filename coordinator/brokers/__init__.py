"""Leadership of partitions, and the requests of gateways to one another."""
