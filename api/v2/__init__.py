"""The routes of the REST Proxy's version 2, and the stateless fetch."""
