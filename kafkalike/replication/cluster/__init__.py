"""Clusters of several roots: brokers, their replicas, the controller, and recovery."""
