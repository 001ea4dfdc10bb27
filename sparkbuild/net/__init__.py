"""Fetch files that are known by their digest, from the Python package index among others."""
