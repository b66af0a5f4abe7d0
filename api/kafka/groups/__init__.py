"""The APIs of classic groups, and of the offsets that all groups commit."""
