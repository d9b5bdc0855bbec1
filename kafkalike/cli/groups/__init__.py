"""The command about consumer groups, and its reports."""
