"""What is looked at, each a small function that gives one finding."""
