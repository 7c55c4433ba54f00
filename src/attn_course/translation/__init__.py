"""From text to text: the translator, its command line and its metrics."""
