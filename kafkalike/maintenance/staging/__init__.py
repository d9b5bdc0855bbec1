"""Staging: folders in which a Spark write lies before its commit, and who may delete them."""
