"""Impatient: requests to an object store that may not answer: they are given up after a while, as others may."""
