"""Pages of a history: files that any browser shows, without a server, a network or JavaScript."""
