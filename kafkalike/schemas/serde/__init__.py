"""Serializers, deserializers and codecs with schemas, with the names, arguments and settings of Confluent's."""
