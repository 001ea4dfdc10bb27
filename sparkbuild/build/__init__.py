"""Configure, build and inspect: what CMake was asked, what it found, what came out."""
