"""Sources: pinned by content, kept for ever in a local git object store, patched exactly."""
