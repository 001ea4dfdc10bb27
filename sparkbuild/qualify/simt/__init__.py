"""Executes PTX on a CPU: many lanes at once, exact, and every access checked."""
