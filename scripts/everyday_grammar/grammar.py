"""All constructions of the everyday corpus. Used from chapter 10 on.

:data:`CONSTRUCTIONS` holds, for each name, the function that draws a sentence and how often it is drawn.
"""

from everyday_grammar import acts, clauses, things, wishes
from everyday_grammar.phrases import CONSTRUCTIONS, Draw, Sentence, Words

__all__ = [
    "CONSTRUCTIONS",
    "Draw",
    "Sentence",
    "Words",
    "acts",
    "clauses",
    "things",
    "wishes",
]
