"""Tokens on disk against tokenizing by hand, and the order in which windows come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import prose
from landscape.errors import StoreError, TextError
from landscape.storage.digests import with_digest
from landscape.training.data import END, FACTS, IDS, Order, open_tokens, train_tokenizer, write_tokens

DOCUMENTS = ["the cat sat", "", "a dog", "rain over ünïcode hills\n", " far away"]
MANY = [f"{prose(3, seed)} number {seed}" for seed in range(600)]  # more than are tokenized at a time


def by_hand(documents: list[str], tokenizer: Any, separate: bool = True) -> list[int]:
    ids: list[int] = []
    for document in documents:
        ids += tokenizer.encode(document, add_special_tokens=False)
        ids += [tokenizer.eos_token_id] * separate
    return ids


def words(number: int) -> Any:
    """A tokenizer of `number` words: </s>, w1, w2, …"""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"</s>": 0} | {f"w{i}": i for i in range(1, number)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="</s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="</s>")


class TestTokens:
    @pytest.mark.parametrize("separate", [True, False])
    @pytest.mark.parametrize("documents", [DOCUMENTS, MANY], ids=["few", "many"])
    def test_they_are_those_of_tokenizing_by_hand(self, tmp_path: Path, tokenizer, documents, separate: bool):
        expected = by_hand(documents, tokenizer, separate)
        made = write_tokens(tmp_path / "t", iter(documents), tokenizer, {"text": "mine"}, separate)
        for found in (made, open_tokens(tmp_path / "t")):
            assert found.ids.tolist() == expected
            assert (found.documents, found.folder) == (len(documents), tmp_path / "t")
        facts = json.loads((tmp_path / "t" / FACTS).read_text())
        assert {name: value for name, value in facts.items() if name not in ("files", "digest")} == {
            "text": "mine",
            "dtype": "<u2",
            "tokens": len(expected),
            "documents": len(documents),
            "fingerprint": made.fingerprint,
        }

    def test_the_end_of_text_stands_after_each_document(self, tmp_path: Path, tokenizer):
        ids = write_tokens(tmp_path / "t", ["the cat", "", "a dog"], tokenizer, {}).ids
        assert [place for place, token in enumerate(ids) if token == tokenizer.eos_token_id] == [
            len(ids) - len(tokenizer.encode("a dog")) - 3,
            len(ids) - len(tokenizer.encode("a dog")) - 2,
            len(ids) - 1,
        ]

    @pytest.mark.parametrize("limit", [1, 7, 1000, 2500, 2501, "all", "more"])
    def test_a_limit_cuts_exactly(self, tmp_path: Path, tokenizer, limit):
        whole = by_hand(MANY, tokenizer)
        assert len(whole) > 5000
        number = {"all": len(whole), "more": len(whole) + 1}.get(limit, limit)
        heard: list[tuple[int, int]] = []
        found = write_tokens(
            tmp_path / "t", MANY, tokenizer, {}, limit=number, on_tokens=lambda *told: heard.append(told)
        )
        assert found.ids.tolist() == whole[:number]
        assert heard[-1] == (len(found.ids), number)
        assert [done for done, _ in heard] == sorted({done for done, _ in heard})

    def test_no_more_is_read_than_the_limit_needs(self, tmp_path: Path, tokenizer):
        def endless() -> Iterator[str]:
            while True:
                yield "the cat"

        assert len(write_tokens(tmp_path / "t", endless(), tokenizer, {}, limit=5000).ids) == 5000

    @pytest.mark.parametrize(
        ("number", "dtype"), [(300, "<u2"), (65_535, "<u2"), (65_536, "<u2"), (65_537, "<u4"), (70_000, "<u4")]
    )
    def test_two_bytes_where_the_vocabulary_fits_and_else_four(self, tmp_path: Path, number: int, dtype: str):
        tokenizer = words(number)
        assert len(tokenizer) == number
        found = write_tokens(tmp_path / "t", [f"w2 w{number - 1} w{number // 2}"], tokenizer, {})
        assert found.ids.dtype == np.dtype(dtype)
        assert found.ids.tolist() == [2, number - 1, number // 2, 0]
        assert (tmp_path / "t" / IDS).stat().st_size == 4 * np.dtype(dtype).itemsize

    def test_the_fingerprint_is_that_of_the_ids_and_of_nothing_else(self, tmp_path: Path, tokenizer):
        one = write_tokens(tmp_path / "a", DOCUMENTS, tokenizer, {"text": "one"})
        two = write_tokens(tmp_path / "b", DOCUMENTS, tokenizer, {"text": "two"})
        other = write_tokens(tmp_path / "c", [*DOCUMENTS[:-1], "near"], tokenizer, {"text": "one"})
        assert one.fingerprint == two.fingerprint != other.fingerprint
        assert one.fingerprint == hashlib.sha256((tmp_path / "a" / IDS).read_bytes()).hexdigest()
        many = write_tokens(tmp_path / "d", MANY, tokenizer, {})  # in several pieces
        assert many.fingerprint == hashlib.sha256((tmp_path / "d" / IDS).read_bytes()).hexdigest()

    def test_the_tokenizer_lies_beside_them(self, tmp_path: Path, tokenizer):
        from transformers import AutoTokenizer

        write_tokens(tmp_path / "t", DOCUMENTS, tokenizer, {})
        again = AutoTokenizer.from_pretrained(tmp_path / "t")
        assert by_hand(DOCUMENTS, again) == by_hand(DOCUMENTS, tokenizer)

    def test_a_tokenizer_that_begins_every_text_with_a_token_does_not_here(self, tmp_path: Path):
        from tokenizers.processors import TemplateProcessing

        tokenizer = words(10)
        begin = TemplateProcessing(single="w9 $A", special_tokens=[("w9", 9)])
        tokenizer.backend_tokenizer.post_processor = begin
        assert tokenizer.encode("w2 w3") == [9, 2, 3]
        assert write_tokens(tmp_path / "t", ["w2 w3", "w4"], tokenizer, {}).ids.tolist() == [2, 3, 0, 4, 0]

    def test_no_end_of_text_token_to_separate_with(self, tmp_path: Path):
        tokenizer = words(10)
        tokenizer.eos_token = None
        with pytest.raises(TextError, match="no end-of-text token: leave documents unseparated with separate=false"):
            write_tokens(tmp_path / "t", ["w1 w2"], tokenizer, {})
        assert not (tmp_path / "t").exists()
        assert write_tokens(tmp_path / "t", ["w1 w2"], tokenizer, {}, separate=False).ids.tolist() == [1, 2]

    @pytest.mark.parametrize("documents", [[], ["", ""]])
    def test_an_empty_text_is_refused_and_leaves_nothing(self, tmp_path: Path, tokenizer, documents: list[str]):
        with pytest.raises(TextError, match="the text to train on is empty"):
            write_tokens(tmp_path / "t", documents, tokenizer, {}, separate=False)
        assert open_tokens(tmp_path / "t") is None

    def test_a_place_that_is_taken_is_one_line(self, tmp_path: Path, tokenizer):
        (tmp_path / "t").write_text("a file")
        with pytest.raises(StoreError, match=r"t: cannot be written .*--data"):
            write_tokens(tmp_path / "t", DOCUMENTS, tokenizer, {})
        assert (tmp_path / "t").read_text() == "a file"


class TestHalfWritten:
    @pytest.fixture
    def folder(self, tmp_path: Path, tokenizer) -> Path:
        write_tokens(tmp_path / "t", DOCUMENTS, tokenizer, {})
        return tmp_path / "t"

    def test_there_is_nothing_where_nothing_was_written(self, tmp_path: Path):
        assert open_tokens(tmp_path / "none") is None

    def test_ids_without_facts_are_not_opened(self, folder: Path):
        (folder / FACTS).unlink()
        assert open_tokens(folder) is None

    @pytest.mark.parametrize("size", [-2, -1, 1, 2, None])
    def test_ids_of_another_length_are_not_opened(self, folder: Path, size: int | None):
        whole = (folder / IDS).read_bytes()
        if size is None:
            (folder / IDS).unlink()
        else:
            (folder / IDS).write_bytes(whole[:size] if size < 0 else whole + bytes(size))
        assert open_tokens(folder) is None
        (folder / IDS).write_bytes(whole)
        assert open_tokens(folder) is not None

    @pytest.mark.parametrize("name", [IDS, FACTS, "tokenizer.json"])
    def test_a_changed_byte_is_found(self, folder: Path, name: str):
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)
        assert open_tokens(folder) is None

    @pytest.mark.parametrize("dtype", ["S", "V0", "O", "no type", 3])
    def test_a_type_that_numbers_cannot_have_is_none(self, folder: Path, dtype: object):
        facts = json.loads((folder / FACTS).read_text())
        (folder / FACTS).write_text(json.dumps(with_digest(facts | {"dtype": dtype})))
        assert open_tokens(folder) is None

    @pytest.mark.parametrize("facts", ["", "{", "{}", "[]", "null", '"facts"', "\udcff", "[" * 100_000])
    def test_damaged_facts_are_none(self, folder: Path, facts: str):
        (folder / FACTS).write_text(facts, encoding="utf-8", errors="surrogateescape")
        assert open_tokens(folder) is None

    @pytest.mark.parametrize("change", [{"dtype": "words"}, {"dtype": 3}, {"tokens": "many"}, {"dtype": "<u4"}])
    def test_facts_that_do_not_fit_are_none(self, folder: Path, change: dict[str, object]):
        facts = json.loads((folder / FACTS).read_text())
        (folder / FACTS).write_text(json.dumps(facts | change))
        assert open_tokens(folder) is None

    def test_facts_that_lack_something_are_none(self, folder: Path):
        facts = json.loads((folder / FACTS).read_text())
        for name in ("dtype", "tokens", "documents", "fingerprint"):
            (folder / FACTS).write_text(json.dumps({key: value for key, value in facts.items() if key != name}))
            assert open_tokens(folder) is None

    def test_what_was_whole_before_is_not_opened_while_written_anew(self, folder: Path, tokenizer):
        whole = open_tokens(folder).ids.tolist()

        def stopped() -> Iterator[str]:
            yield from MANY
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_tokens(folder, stopped(), tokenizer, {})
        assert (folder / IDS).exists() and open_tokens(folder) is None
        assert write_tokens(folder, DOCUMENTS, tokenizer, {}).ids.tolist() == whole


class TestTrainedTokenizer:
    def test_it_has_the_size_asked_for_and_is_the_same_again(self):
        documents = [prose(200, seed) for seed in range(5)]
        one, two = (train_tokenizer(iter(documents), 300) for _ in range(2))
        assert len(one) == 300
        assert one.backend_tokenizer.to_str() == two.backend_tokenizer.to_str()
        other = train_tokenizer(["of wholly other words, here and there " * 20], 300)
        assert other.backend_tokenizer.to_str() != one.backend_tokenizer.to_str()

    def test_it_reads_every_text_and_gives_it_back(self):
        tokenizer = train_tokenizer([prose(500)], 300)
        for text in ("the cat", " Ünïcode λ 日本\n\ttabs", "no spaces"):
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert tokenizer.decode(ids) == text
            assert tokenizer.eos_token_id not in ids
        assert len(tokenizer.encode("the cat")) < len("the cat")
        assert tokenizer.eos_token == END and tokenizer.convert_tokens_to_ids(END) == tokenizer.eos_token_id


def order(n: int, steps: int = 50, seed: int = 3, kind: str = "shuffled", seq_len: int = 8, batch: int = 4) -> Order:
    """Over ids that say where they stand."""
    return Order(np.arange(n, dtype=np.uint16), seq_len, batch, steps, seed, kind)


def starts(of: Order, steps: int) -> np.ndarray:
    return np.concatenate([of.starts(step) for step in range(steps)])


class TestShuffled:
    @pytest.mark.parametrize("n", [16, 23, 24, 100, 103])
    @pytest.mark.parametrize("batch", [1, 4, 30])
    def test_an_epoch_takes_every_window_once_from_a_place_of_its_own(self, n: int, batch: int):
        windows, epochs = n // 8 - 1, 6
        found = starts(order(n, batch=batch), -(-windows * epochs // batch))[: windows * epochs]
        for epoch in found.reshape(epochs, windows):
            place = epoch.min()
            assert 0 <= place < 8
            assert sorted(epoch) == [place + 8 * i for i in range(windows)]
            assert epoch.max() + 8 <= n

    def test_epochs_differ_in_order_and_in_place(self):
        epochs = starts(order(8 * 41, batch=40), 60).reshape(60, 40)
        assert {epoch.min() for epoch in epochs} == set(range(8))
        ranks = {tuple(np.argsort(epoch)) for epoch in epochs}
        assert len(ranks) == 60 and tuple(range(40)) not in ranks

    def test_any_step_is_the_same_whatever_came_before(self):
        in_turn = [order(100, batch=7).starts(step) for step in range(40)]
        at_random = order(100, batch=7)
        for step in np.random.default_rng(0).permutation(40):
            assert np.array_equal(at_random.starts(step), in_turn[step])

    def test_the_length_of_the_run_does_not_matter(self):
        assert np.array_equal(starts(order(100, steps=10), 10), starts(order(100, steps=1000), 10))


class TestDrawn:
    def test_windows_begin_anywhere_and_end_within(self):
        found = starts(order(40, steps=1000, kind="drawn"), 1000)
        assert (found.min(), found.max()) == (0, 31)
        assert np.bincount(found).min() > 60  # of 125

    def test_a_longer_run_begins_with_the_same(self):
        short, long = (starts(order(1000, steps=steps, kind="drawn"), 7) for steps in (7, 500))
        assert np.array_equal(short, long)


@pytest.mark.parametrize("kind", ["shuffled", "drawn"])
class TestBoth:
    def test_the_seed_decides(self, kind: str):
        one, same, other = (starts(order(1000, seed=seed, kind=kind), 20) for seed in (3, 3, 4))
        assert np.array_equal(one, same) and not np.array_equal(one, other)
        torch.manual_seed(1)
        np.random.seed(1)
        assert np.array_equal(starts(order(1000, kind=kind), 20), one)

    def test_a_batch_holds_the_ids_of_its_windows(self, kind: str, tmp_path: Path):
        np.arange(500, 700, dtype=np.uint16).tofile(tmp_path / "ids")
        mapped = np.memmap(tmp_path / "ids", dtype=np.uint16, mode="r")
        own = Order(mapped, 8, 4, 10, 0, kind)
        places = own.starts(5)
        batch = own.batch(places)
        assert places.shape == (4,) and places.dtype == np.int64
        assert batch.dtype == torch.int64 and batch.shape == (4, 8)
        assert batch.tolist() == [list(range(500 + place, 508 + place)) for place in places]

    def test_a_text_of_too_few_tokens_is_one_line(self, kind: str):
        assert order(16, kind=kind).starts(0).max() + 8 <= 16
        with pytest.raises(TextError, match=r"has 15 tokens: too few for windows of 8"):
            order(15, kind=kind)
