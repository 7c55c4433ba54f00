"""The exercises of the chapters, and the engine that checks their answers. Used from chapter 0 on."""
