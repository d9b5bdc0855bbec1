"""Serializers and deserializers under the names, arguments and settings of Confluent's."""
