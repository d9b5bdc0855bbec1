"""Dead letters: records that could not be read, written to topics of their own, once each; shown and replayed."""
