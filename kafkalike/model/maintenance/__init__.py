"""Rules of maintenance: retention, compaction, merges of small files, removal of records, rows to keep."""
