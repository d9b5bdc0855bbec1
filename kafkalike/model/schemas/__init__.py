"""Schemas: what subjects, versions, ids and references of a registry are, and what may be done to them; pure Python."""
