"""Dead letters: records that could not be read, with the reason. Pure rules."""
