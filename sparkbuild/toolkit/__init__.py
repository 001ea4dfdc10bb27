"""Toolkits: which compilers build, and proof that their parts belong together."""
