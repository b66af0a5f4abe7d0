"""Records as pages show and files export them: found, filtered, decoded."""
