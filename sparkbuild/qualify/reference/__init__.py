"""What is right, from the CPU side of the same source and from numpy."""
