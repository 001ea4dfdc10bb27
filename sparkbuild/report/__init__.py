"""Reports: one model, written as JSON, JUnit XML and terminal text."""
