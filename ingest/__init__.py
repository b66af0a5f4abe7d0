"""The write path of a gateway: bound the memory, choose the partition, gather batches, commit in groups."""
