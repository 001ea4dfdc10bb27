"""PTX as text becomes a module of instructions."""
