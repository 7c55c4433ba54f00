"""The attention of another framework, rebuilt in PyTorch, and attention as a Triton kernel."""
