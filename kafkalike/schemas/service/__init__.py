"""The schema registry as a service for Confluent's clients: REST interface, HTTP server, credentials."""
