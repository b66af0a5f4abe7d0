"""SQL over topics and over what is known of groups, without a JVM."""
