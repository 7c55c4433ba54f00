"""Attention and what belongs to it, as pure functions of tensors."""
