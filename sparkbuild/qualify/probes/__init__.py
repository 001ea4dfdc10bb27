"""Kernels that wrap the source's own device code, their inputs, and what is right."""
