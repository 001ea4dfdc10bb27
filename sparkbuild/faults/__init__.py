"""The fault matrix: seeded faults, and which stage of the product refuses each."""
