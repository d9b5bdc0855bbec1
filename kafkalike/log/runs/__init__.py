"""Runs: records that tasks have staged without offsets, and the numbered segments that are made from them."""
