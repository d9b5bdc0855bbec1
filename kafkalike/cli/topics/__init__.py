"""Commands for topics: settings, offsets, deletion of records."""
