"""Transactions: what a transactional id may do next, and what its rows say; pure Python."""
