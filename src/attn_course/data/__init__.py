"""Where the sentences come from, and how they become tensors. Derived in chapter 10."""
