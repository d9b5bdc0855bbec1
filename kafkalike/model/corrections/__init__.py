"""Corrections, the rules: what goes from a topic, and the certificate that says it went; pure Python."""
