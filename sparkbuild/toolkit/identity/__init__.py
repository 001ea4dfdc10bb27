"""Read a root part by part and judge whether it is one whole; nothing of it is run."""
