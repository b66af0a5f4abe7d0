"""Where files are: a directory or a bucket, asked for the same few things."""
