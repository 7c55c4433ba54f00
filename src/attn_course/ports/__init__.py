"""The attention of other frameworks, rebuilt in PyTorch."""
