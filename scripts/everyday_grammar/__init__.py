"""The grammar of the everyday corpus: Japanese sentences, their translations and the links between words."""
