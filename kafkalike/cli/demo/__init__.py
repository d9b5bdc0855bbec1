"""`kafkalike demo`: a tour of kafkalike with the flights that left New York in 2013."""
