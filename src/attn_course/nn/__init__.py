"""Modules with parameters: attention layers, the Transformer and other models."""
