"""Groups: rosters, assignments and the rebalance protocol of consumer groups; pure Python."""
