"""Build llama.cpp for NVIDIA GB10 and prove that the binaries tell the truth."""

from typing import Final

__version__: Final = "0.1.0"
