"""Grade the exercises of a notebook in processes of their own: the command ``attn-course grade``."""
