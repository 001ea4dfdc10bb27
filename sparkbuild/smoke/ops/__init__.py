"""Upstream's own operator tests, for the types and the operators that a model really uses."""
