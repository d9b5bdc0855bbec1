"""Rules of maintenance: cleanup of logs, removal of records, and compaction of control tables."""
