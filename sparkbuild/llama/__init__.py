"""llama-server from outside: its life, its HTTP interface, the memory that it leaves."""
