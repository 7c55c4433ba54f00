"""The bundled Japanese–English corpus: everyday sentences, written for this course. Used from chapter 10 on.

Two parts, both here without any network:

* :func:`make_corpus` splits 15,000 pairs that a grammar has written (scripts/everyday_grammar). The grammar records
  which word came from which, so every pair has its true word alignment.
* :func:`load_handwritten` reads sentences written by hand: talk as it is, idioms, unnamed subjects, ambiguities.
  :func:`load_handwritten_aligned` reads those whose words were also linked by hand.

How Japanese is cut into words: particles, nouns, and the stem of a verb or its て form's stem are words (食べ, 読ん),
て and で are, and an ending is one word as a whole (ました, ませんでした, います). An adjective keeps its ending
(面白い, 面白かった, 面白く), a noun made verb by する is two words (勉強 し), and a number and its counter are two
(三 冊). SudachiPy cuts at the same places, and splits the endings further (まし た).
"""

from attn_course.data.everyday.corpus import AlignedPair, EverydayCorpus, make_corpus, split_of
from attn_course.data.everyday.handwritten import load_handwritten, load_handwritten_aligned

__all__ = ["AlignedPair", "EverydayCorpus", "load_handwritten", "load_handwritten_aligned", "make_corpus", "split_of"]
