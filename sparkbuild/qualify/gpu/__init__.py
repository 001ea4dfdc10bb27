"""Probes on a real GPU: the driver, what is assembled for it, and how both are compared."""
