"""The registry of a cluster as a service for programs that know Confluent's: REST interface, HTTP, credentials."""
