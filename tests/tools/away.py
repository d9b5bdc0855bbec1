"""A root's folder that is taken away, as an unmounted disk is, and brought back with all it had."""

from pathlib import Path


def away(root: Path) -> None:
    """Take a root away."""
    root.rename(root.with_suffix(".gone"))


def back(root: Path) -> None:
    """Bring it back."""
    root.with_suffix(".gone").rename(root)
