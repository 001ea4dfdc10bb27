"""Checks of a real model as it is served: suites are data beside this module, checks are code."""
