"""Groups: members of consumer groups, their partitions, and committed offsets."""
