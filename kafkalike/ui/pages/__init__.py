"""Pages of the console: from a request to HTML."""
