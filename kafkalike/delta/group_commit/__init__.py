"""Group commit: one table commit for the appends, or the control rows, of many writers."""
