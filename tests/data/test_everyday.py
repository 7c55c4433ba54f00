"""The bundled corpus: every Japanese sentence has one translation, its words are linked, and the split holds."""

import lzma
import re
import unicodedata
from collections import Counter, defaultdict

import pytest
import write_everyday_corpus
from everyday_grammar.grammar import CONSTRUCTIONS
from write_everyday_corpus import MAX_WORDS, NUM_PAIRS, draw_different_pairs

from attn_course.data.everyday import (
    AlignedPair,
    load_handwritten,
    load_handwritten_aligned,
    make_corpus,
    split_of,
)
from attn_course.data.everyday.corpus import MIN_SEEN, read_pairs

PARTICLES = set(["は", "が", "を", "に", "で", "と", "の", "か", "も"])


@pytest.fixture(scope="module")
def corpus():
    return make_corpus()


@pytest.fixture(scope="module")
def drawn():
    return list(read_pairs())


def partners(pair, word):
    """The Japanese words that an English word is linked to."""
    return [pair.ja[j] for i, j in sorted(pair.alignment) if pair.en[i] == word]


def find(pairs, japanese):
    return next(pair for pair in pairs if pair.japanese == japanese)


# -- The sentences -----------------------------------------------------------------------------------


def test_no_japanese_sentence_has_two_translations(drawn):
    translations = defaultdict(set)
    for pair in drawn:
        translations[pair.ja].add(pair.en)
        assert len(translations[pair.ja]) == 1, translations[pair.ja]


def test_two_ways_to_cut_a_sentence_into_words_do_not_occur(drawn):
    cuts = defaultdict(set)
    for pair in drawn:
        cuts[pair.japanese].add(pair.ja)
    assert all(len(ways) == 1 for ways in cuts.values())


def test_sentences_are_short_and_the_vocabulary_is_small(drawn):
    for pair in drawn:
        assert 3 <= sum(word not in "、。" for word in pair.ja) <= MAX_WORDS, pair
    assert 250 <= len({word for pair in drawn for word in pair.ja}) <= 450
    assert 250 <= len({word for pair in drawn for word in pair.en}) <= 470


def test_every_construction_is_drawn(drawn):
    assert {pair.construction for pair in drawn} == set(CONSTRUCTIONS)
    assert len(CONSTRUCTIONS) >= 30


def test_a_question_in_one_language_is_a_question_in_the_other(drawn):
    for pair in drawn:
        assert (pair.en[-1] == "?") == (pair.ja[-2:] == ("か", "。")), pair
        assert pair.ja[-1] == "。", pair
        assert pair.en[-1] in ".?", pair


def test_a_negation_is_in_both_languages(drawn):
    denials = {"ません", "ませんでした", "いません", "ありません", "ありませんでした", "ないで"}
    for pair in drawn:
        assert bool({"not", "cannot", "no"} & set(pair.en)) == bool(denials & set(pair.ja)), pair


def test_verbs_agree_with_their_subjects(drawn):
    family = "mother|father|(older|younger) (brother|sister)|grandmother|grandfather"
    one = rf"^(he|she|(my|your) ({family})|hanako|kenta|yumi|mr tanaka|ms sato)"
    third = re.compile(one + " (am|are|were|have|do|like|want|go|eat|buy) ")
    others = re.compile(r"^(i|we|they) (is|has|does|likes|wants|goes|reads|eats) |^(i|they|we) (was) |^i (are|were) ")
    for pair in drawn:
        text = " ".join(pair.en)
        assert not third.match(text), text
        assert not (others.match(text) and not text.startswith("i was ")), text


def test_an_comes_before_vowels_only(drawn):
    for pair in drawn:
        for article, following in zip(pair.en, pair.en[1:], strict=False):
            if article in ("a", "an"):
                assert (article == "an") == (following[0] in "aeiou"), pair


def test_times_agree_with_tenses(drawn):
    past = {"昨日", "今朝", "先週", "先月", "去年"}
    future = {"明日", "あさって", "今夜", "来週", "来月", "来年"}
    for pair in drawn:
        en = set(pair.en)
        if past & set(pair.ja):
            assert not {"will", "every", "now", "tomorrow", "tonight"} & en, pair
        if future & set(pair.ja):
            assert not {"did", "was", "were", "every", "now", "yesterday", "last"} & en, pair
        if "今" in pair.ja:
            assert "now" in en, pair


def test_counters_fit_what_is_counted(drawn):
    counted = {
        "冊": ["books", "magazines", "novels"],
        "枚": ["shirts", "pictures", "tickets"],
        "匹": ["cats", "dogs"],
        "本": ["umbrellas", "movies"],
        "個": ["eggs", "apples"],
        "通": ["letters", "emails"],
        "杯": ["cups", "glasses"],
        "足": ["pairs"],
    }
    counters = {thing: counter for counter, things in counted.items() for thing in things}
    seen = Counter()
    for pair in drawn:
        for number, thing in zip(pair.en, pair.en[1:], strict=False):
            if number in ("two", "three", "four", "five") and thing in counters:
                assert counters[thing] in pair.ja, pair
                seen[thing] += 1
    assert len(seen) >= 12


def test_the_written_sentence_is_natural_text():
    pair = AlignedPair(
        tuple(["田中", "さん", "は", "母", "の", "部屋", "に", "い", "ます", "か", "。"]),
        tuple(["is", "mr", "tanaka", "in", "my", "mother", "'s", "room", "?"]),
        frozenset(),
    )
    assert pair.japanese == "田中さんは母の部屋にいますか。"
    assert pair.english == "Is Mr. Tanaka in my mother's room?"


# -- The alignments ----------------------------------------------------------------------------------


def test_links_point_to_words_of_the_sentence(drawn):
    for pair in drawn:
        assert all(0 <= i < len(pair.en) and 0 <= j < len(pair.ja) for i, j in pair.alignment), pair


def test_full_stops_are_linked_and_every_content_word_of_japanese_has_a_partner(drawn):
    free = PARTICLES | {"、", "さん", "な"}
    for pair in drawn:
        linked = {j for _, j in pair.alignment}
        assert (len(pair.en) - 1, len(pair.ja) - 1) in pair.alignment, pair
        assert {pair.ja[j] for j in range(len(pair.ja)) if j not in linked} <= free, pair


def test_few_english_words_are_without_a_partner(drawn):
    free = Counter()
    for pair in drawn:
        linked = {i for i, _ in pair.alignment}
        free.update(word for i, word in enumerate(pair.en) if i not in linked)
    allowed = {"a", "an", "the", "of", "to", "in", "it", "any", "that", "who", "is", "are", "was", "were", "will"}
    allowed |= {"i", "we", "you", "he", "she", "they"}
    assert set(free) <= allowed, set(free) - allowed


def test_a_word_keeps_its_partner_wherever_it_stands(drawn):
    lexicon = {
        "books": {"本"},
        "yesterday": {"昨日"},
        "hanako": {"花子"},
        "tanaka": {"田中"},
        "than": {"より"},
        "because": {"ので"},
    }
    lexicon |= {
        "tokyo": {"東京"},
        "while": {"ながら"},
        "french": {"フランス語"},
        "interesting": {"面白い", "面白かった", "面白く"},
    }
    for word, japanese in lexicon.items():
        found = Counter(ja for pair in drawn for ja in partners(pair, word))
        assert set(found) == japanese, (word, found)


def test_the_links_of_one_sentence_are_those_a_reader_would_draw(drawn):
    pair = next(p for p in drawn if p.construction == "counted" and "did" in p.en and "冊" in p.ja)
    did, number = pair.en.index("did"), next(i for i, w in enumerate(pair.en) if w in ("two", "three", "four", "five"))
    assert partners(pair, "did") == ["ました"]
    assert {pair.ja[j] for i, j in pair.alignment if i == number} >= {"冊"}
    assert partners(pair, "?") == ["か", "。"]
    assert did == 0


# -- The split ---------------------------------------------------------------------------------------


def test_the_parts_have_the_sizes_asked_for(corpus):
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (5000, 500, 500)
    other = make_corpus(1000, num_dev=30, num_test=70)
    assert (len(other.train), len(other.dev), len(other.test)) == (900, 30, 70)


def test_no_pair_occurs_twice(corpus):
    pairs = [pair.ja for part in (corpus.train, corpus.dev, corpus.test) for pair in part]
    assert len(set(pairs)) == len(pairs) == 6000


def test_no_combination_that_belongs_to_the_test_occurs_in_training(corpus):
    in_training = {c for pair in corpus.train for c in pair.combinations}
    for part, name in ((corpus.test, "test"), (corpus.dev, "dev")):
        for pair in part:
            held_out = {c for c in pair.combinations if split_of(c) == name}
            assert held_out, pair
            assert not held_out & in_training, pair
    assert {split_of(c) for c in in_training} == {"train"}


def test_a_combination_of_words_is_looked_for_in_the_sentences_themselves(corpus):
    # not by what the grammar says of its sentences, but by their words: who did what to what, in plain statements
    def facts(pairs):
        found = set()
        for pair in pairs:
            if pair.construction in ("past", "past_negative", "future") and {"は", "を"} <= set(pair.ja):
                topic, thing = pair.ja.index("は"), pair.ja.index("を")
                start = pair.ja.index("、") + 1 if "、" in pair.ja[:topic] else 0
                found.add((pair.ja[start:topic], pair.ja[thing - 1], pair.ja[-3]))
        return found

    assert len(facts(corpus.test)) > 20
    assert not facts(corpus.test) & facts(corpus.train)


def test_every_word_and_every_construction_of_the_test_occurs_in_training(corpus):
    for part in (corpus.dev, corpus.test):
        for side in ("ja", "en"):
            times = Counter(word for pair in corpus.train for word in getattr(pair, side))
            assert min(times[word] for pair in part for word in getattr(pair, side)) >= MIN_SEEN >= 5
        assert {pair.construction for pair in part} <= {pair.construction for pair in corpus.train}


def test_the_corpus_is_the_same_on_every_computer_and_in_every_run(corpus):
    again = make_corpus()
    assert corpus == again
    assert corpus.train[0].japanese == FIRST[0], corpus.train[0]
    assert corpus.train[0].english == FIRST[1]
    assert corpus.test[-1].japanese == LAST[0], corpus.test[-1]
    assert corpus.test[-1].english == LAST[1]


FIRST = ("兄が読んだ小説は面白かったです。", "The novel that my older brother read was interesting.")
LAST = ("母は昨日、公園に行って、歩きました。", "My mother went to the park and walked yesterday.")


@pytest.mark.parametrize(
    ("num_pairs", "num_dev", "num_test"), [(1000, 500, 500), (0, 0, 0), (1499, 500, 500), (6000, -1, 500)]
)
def test_too_few_pairs_for_training_are_refused(num_pairs, num_dev, num_test):
    with pytest.raises(
        ValueError, match=rf"num_pairs \({num_pairs}\) less num_dev \({num_dev}\).*must leave at least 500"
    ):
        make_corpus(num_pairs, num_dev=num_dev, num_test=num_test)


def test_more_pairs_than_the_file_has_are_refused():
    with pytest.raises(ValueError, match=r"num_pairs \(16000\): the bundled file has [\d,]+ pairs for training"):
        make_corpus(16_000)


def test_the_grammar_writes_the_file():
    pairs = list(read_pairs())
    assert len(pairs) == NUM_PAIRS
    assert pairs[:3000] == [pair for _, pair in zip(range(3000), draw_different_pairs(), strict=False)]
    lines = [write_everyday_corpus.to_line(pair) for pair in pairs]
    assert lzma.decompress(write_everyday_corpus.PATH.read_bytes()).decode() == "".join(f"{x}\n" for x in lines)


# -- Words as a morphological analyser cuts them -----------------------------------------------------


def test_words_begin_and_end_where_an_analyser_puts_boundaries(corpus):
    sudachipy = pytest.importorskip("sudachipy")
    tokenizer = sudachipy.Dictionary(dict="small").tokenizer(mode=sudachipy.SplitMode.A)
    ours = theirs = 0
    for pair in corpus.test:
        bounds, place = set(), 0
        for morpheme in tokenizer.tokenize(pair.japanese):
            place += len(morpheme.surface())
            bounds.add(place)
        place = 0
        for word in pair.ja:
            place += len(word)
            ours += 1
            theirs += place in bounds
    assert theirs / ours > 0.98


# -- Written by hand ---------------------------------------------------------------------------------


def plain(text):
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).lower())


def test_hand_written_sentences_are_many_and_all_different():
    pairs = load_handwritten()
    assert len(pairs) >= 300
    assert len({plain(pair.ja) for pair in pairs}) == len({plain(pair.en) for pair in pairs}) == len(pairs)


def test_hand_written_sentences_are_japanese_beside_english():
    for ja, en in load_handwritten():
        assert re.search(r"[ぁ-んァ-ン]", ja), ja
        assert ja[-1] in "。？！", ja
        assert not re.search(r"[ -~]", ja), ja
        assert re.fullmatch(r"[A-Z][ -~]*[.?!]", en), en
        assert "  " not in en


def test_hand_made_alignments_belong_to_hand_written_sentences():
    translations = dict(load_handwritten())
    pairs = load_handwritten_aligned()
    assert len(pairs) >= 50
    for pair in pairs:
        assert translations[pair.japanese] == pair.english
        assert len(pair.alignment) >= 3
        assert all(0 <= i < len(pair.en) and 0 <= j < len(pair.ja) for i, j in pair.alignment)
        assert (len(pair.en) - 1, len(pair.ja) - 1) in pair.alignment


def test_a_hand_made_alignment_links_what_means_the_same():
    pair = find(load_handwritten_aligned(), "この傘は百円だったが、三年も使っている。")
    assert partners(pair, "umbrella") == ["傘"]
    assert partners(pair, "hundred") == ["百"]
    assert partners(pair, "but") == ["が"]
    assert partners(pair, "years") == ["年"]
