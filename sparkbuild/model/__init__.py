"""Does a model file fit a build and a machine: read from headers, before anything starts."""
