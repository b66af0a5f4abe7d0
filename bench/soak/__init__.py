"""The soak: everything that uses a log on S3, for an hour, while its gateways and its store die."""
