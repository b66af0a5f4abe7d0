"""The files of deploy/: each is checked by the tool that reads it, and its commands run."""
