"""`python -m kafkalike` is the command `kafkalike`."""

from __future__ import annotations

import sys

from kafkalike.cli import main

if __name__ == "__main__":
    sys.exit(main())
