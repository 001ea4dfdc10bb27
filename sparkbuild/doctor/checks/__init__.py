"""Pure functions from a captured machine to findings."""
