"""The pages of the console: a request in, HTML out."""
