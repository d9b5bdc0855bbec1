"""Benchmarks: `make bench` runs every `bench_*.py`."""
