"""Canary models: the real architectures, tiny and trained, with known answers and known numbers."""
