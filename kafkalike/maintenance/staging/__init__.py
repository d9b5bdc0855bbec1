"""Staging: places where Spark writes lie before their commit, and who may delete them."""
