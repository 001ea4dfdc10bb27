"""What was run, when, with what result and which figures: a SQLite file, pages made of it."""
