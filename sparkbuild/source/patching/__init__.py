"""Carry patches for years: judge them on any base, guard file values, make them anew."""
