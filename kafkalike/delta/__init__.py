"""Tables: a Delta table's log in, its state out; and the one loop that changes a table."""
