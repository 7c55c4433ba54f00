"""Tests for code that computes attention: the leak detector and the memory it takes."""
