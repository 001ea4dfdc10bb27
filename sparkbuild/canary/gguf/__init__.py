"""GGUF files of the canaries: converted, derived with a build's own quantiser, perturbed."""
