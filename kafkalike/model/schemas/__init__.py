"""Schemas: subjects, versions, ids and references of a registry, and the rules for changing them; pure Python."""
