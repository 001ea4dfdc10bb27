"""Qualify: execute what the compiler emits for these sources before anything is built."""
