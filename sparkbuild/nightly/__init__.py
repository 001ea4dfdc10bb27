"""A night: what is asked for, which base is tried, what its outcomes mean, whom it tells."""
