"""Schemas: commands about the schemas of a cluster, and the service for those who know Confluent's."""
