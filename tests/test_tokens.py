"""Windows: joined without drift or overlap, or one per document; fingerprints; what cannot be used."""

from __future__ import annotations

import pytest
import torch

from conftest import prose
from landscape.errors import OptionError, TextError
from landscape.tokens import WindowReader, Windows, check_vocabulary

TEXTS = [prose(60, 1), prose(5, 2), prose(200, 3)]


def flat(tokenizer) -> list[int]:
    return [i for text in TEXTS for i in tokenizer(text, add_special_tokens=False)["input_ids"]]


def test_joined_windows_are_the_joined_text_cut_without_its_tail(tokenizer):
    windows = WindowReader(TEXTS, tokenizer, 16).take(10_000)
    ids = flat(tokenizer)
    assert windows.ids.flatten().tolist() == ids[: len(ids) // 16 * 16]
    assert set(windows.lengths.tolist()) == {16}
    assert windows.n_tokens == len(ids) // 16 * 16


def test_later_requests_go_on_where_earlier_ones_stopped(tokenizer):
    whole = WindowReader(TEXTS, tokenizer, 16).take(9)
    reader = WindowReader(TEXTS, tokenizer, 16)
    parts = [reader.take(4), reader.take(3), reader.take(2)]
    assert torch.equal(whole.ids, torch.cat([part.ids for part in parts]))


def test_take_tokens_gives_whole_windows_within_the_number(tokenizer):
    assert len(WindowReader(TEXTS, tokenizer, 16).take_tokens(70)) == 4
    assert len(WindowReader(TEXTS, tokenizer, 16).take_tokens(64)) == 4
    assert len(WindowReader(TEXTS, tokenizer, 16).take_tokens(3)) == 1  # never none


def test_reads_no_more_documents_than_needed(tokenizer):
    def endless():
        yield prose(60)
        raise AssertionError("read on")

    assert len(WindowReader(endless(), tokenizer, 16).take(2)) == 2


def test_documents_have_windows_of_their_own(tokenizer):
    windows = WindowReader(TEXTS, tokenizer, 64, "documents", bos=True).take(10)
    for text, row, length in zip(TEXTS, windows.ids, windows.lengths.tolist(), strict=True):
        ids = [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]][:64]
        assert row[:length].tolist() == ids
        assert not row[length:].any()


def test_a_document_of_one_token_predicts_nothing_and_is_left_out(tokenizer):
    assert len(WindowReader(["a", prose(9)], tokenizer, 64, "documents").take(10)) == 1


def test_fingerprint_depends_on_ids_shape_and_lengths():
    ids = torch.arange(12).reshape(3, 4)
    lengths = torch.tensor([4, 4, 4])
    base = Windows(ids, lengths).fingerprint
    assert base == Windows(ids.clone(), lengths.clone()).fingerprint
    changed = ids.clone()
    changed[2, 3] += 1
    others = [Windows(changed, lengths), Windows(ids.reshape(4, 3), torch.tensor([3] * 4))]
    others.append(Windows(ids, torch.tensor([4, 4, 3])))
    assert len({base, *(other.fingerprint for other in others)}) == 4


def test_what_cannot_be_used(tokenizer):
    with pytest.raises(OptionError, match="at least 2 tokens"):
        WindowReader(TEXTS, tokenizer, 1)
    with pytest.raises(OptionError, match="packing 'odd'"):
        WindowReader(TEXTS, tokenizer, 8, "odd")
    tokenizer_without = type("T", (), {"bos_token_id": None})()
    with pytest.raises(OptionError, match="--bos"):
        WindowReader(TEXTS, tokenizer_without, 8, bos=True)
    with pytest.raises(TextError, match=r"token id 7 in a model of 7 tokens.*--tokenizer"):
        check_vocabulary(Windows(torch.tensor([[1, 7]]), torch.tensor([2])), 7)
