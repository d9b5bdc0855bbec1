"""What the tests with several processes share."""

from tests.tools.shim import faultshim

__all__ = ["faultshim"]
