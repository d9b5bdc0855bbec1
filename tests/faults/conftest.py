"""What the tests of faults share."""

from tests.tools.shim import faultshim

__all__ = ["faultshim"]
