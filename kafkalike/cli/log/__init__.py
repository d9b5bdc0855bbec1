"""Commands that look into a log, check it, repair it and maintain it."""
