"""Topics to files and tables, and back: one-off jobs over part of a topic."""
