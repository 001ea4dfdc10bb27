"""Nets, losses and the training loop (needs the extra ``canary``: torch, transformers)."""
