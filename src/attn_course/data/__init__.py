"""Corpora, tokenisation and batches. Derived in chapter 10."""
