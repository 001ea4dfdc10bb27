"""Locks, and roots made from the wheels that they pin."""
