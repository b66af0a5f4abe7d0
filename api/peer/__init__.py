"""The routes that only other gateways of the root may ask."""
