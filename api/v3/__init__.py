"""The routes of the REST Proxy's version 3."""
