"""The ways to plant a fault, one module for each."""
