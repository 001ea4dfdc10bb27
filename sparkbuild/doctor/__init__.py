"""Whether a machine can build, verify and serve: what is read of it, and what that means."""
