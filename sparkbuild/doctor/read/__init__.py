"""The live reading: the only part that touches the system."""
