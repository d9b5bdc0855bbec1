"""Storage: bytes under a root, in folders, object stores and memory. Knows files and objects, and no table."""
