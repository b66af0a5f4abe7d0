"""The APIs that append to partitions and read them."""
