"""HTTP: the registry of a cluster as a service for programs that know Confluent's."""
