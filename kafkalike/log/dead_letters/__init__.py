"""Dead letters: records that could not be read, and how a consumer writes them to topics of their own, once each."""
