"""Mending: what can be set right in a file's metadata, and a new file that says it."""
