"""Views in SQL: of topics, in a database or a session."""
