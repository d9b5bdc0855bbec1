"""Mirrors: copies of topics in another cluster, made table version by table version until a promotion."""
