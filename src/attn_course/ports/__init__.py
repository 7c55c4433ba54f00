"""Attention as other frameworks write it, rebuilt in PyTorch."""
