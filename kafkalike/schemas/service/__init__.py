"""Service: Confluent's REST interface, without HTTP: method, path, query and body in, the JSON of the answer out."""
