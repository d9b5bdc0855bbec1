"""Schemas: records with an Avro, Protobuf or JSON Schema, and the registry that knows these."""
