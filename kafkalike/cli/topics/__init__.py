"""Commands about topics: their settings, their offsets, their records deleted."""
