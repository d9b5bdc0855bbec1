"""Combined changes: appends of many writers, or rows of many clients, in; one table commit for all of them out."""
