"""Transactions: the state of transactional ids, and the protocols and rules that change it; pure Python."""
