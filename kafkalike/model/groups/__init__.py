"""Groups: who is in one, who owns what, whose session has expired, what is committed; pure Python."""
