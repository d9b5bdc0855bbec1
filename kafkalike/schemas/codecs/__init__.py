"""Codecs: what turns values into payloads and back, one module for each type of schema."""
