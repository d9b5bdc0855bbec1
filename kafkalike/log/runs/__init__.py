"""Staged runs: records that Spark tasks have staged without offsets, and the numbered segments made from them."""
