"""Try a toolkit: compile, link and run a small program, and hear every witness."""
