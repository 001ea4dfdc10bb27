"""The canaries' architectures in PyTorch, written for training; transformers' are the oracle."""
