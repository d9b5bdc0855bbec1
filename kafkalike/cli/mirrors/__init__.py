"""Commands about copies of topics in other clusters."""
