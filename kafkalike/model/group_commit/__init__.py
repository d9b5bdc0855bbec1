"""Group commit: one table commit for the appends of many writers; the waiting appends and the protocol; pure."""
