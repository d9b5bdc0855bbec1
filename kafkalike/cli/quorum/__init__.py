"""Commands about who decides on the metadata of a cluster."""
