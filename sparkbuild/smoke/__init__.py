"""Smoke: start the binaries and find out whether they tell the truth."""
