"""Attention over several processes, a pool of processes, and what they do in chapter 20."""
