"""Metrics: a cluster in; its figures for Prometheus, and as plain values, out."""
