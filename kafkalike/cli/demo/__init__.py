"""`kafkalike demo`: the flights of New York in 2013, and a tour of what kafkalike does with them."""
