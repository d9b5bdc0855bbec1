"""Groups: who holds a group, and which offsets it has committed."""
