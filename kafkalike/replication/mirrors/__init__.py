"""Mirrors: copies of topics in another cluster, table version by table version, until they are promoted."""
