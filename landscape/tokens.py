"""Windows of text: documents in, fixed token windows with a fingerprint out.

Two ways of packing. `joined` is the protocol of arXiv 2510.06213: documents follow each other without a separator,
are cut into windows of one length, and the tail is dropped. `documents` gives each document a window of its own,
cut at the window length, so windows are ragged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from landscape.errors import OptionError, TextError

Packing = Literal["joined", "documents"]


@dataclass(frozen=True)
class Windows:
    """Token windows: `ids` int64 (windows, tokens) padded with 0 on the right, `lengths` int64 (windows,)."""

    ids: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        """The number of windows."""
        return len(self.ids)

    @property
    def n_tokens(self) -> int:
        """Tokens in all windows, padding not counted."""
        return int(self.lengths.sum())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over shape, lengths and ids: equal exactly when the windows are."""
        digest = hashlib.sha256(str(tuple(self.ids.shape)).encode())
        digest.update(self.lengths.numpy().astype("<i8").tobytes())
        digest.update(self.ids.contiguous().numpy().astype("<i8").tobytes())
        return digest.hexdigest()


class WindowReader:
    """Cuts windows off a stream of documents, one request after another, so two sets never share a token.

    Reads no more documents than it needs.
    """

    def __init__(
        self, documents: Iterable[str], tokenizer: Any, seq_len: int, packing: Packing = "joined", bos: bool = False
    ) -> None:
        """`bos` puts the tokenizer's beginning-of-sequence token before each document; no other token is added."""
        if seq_len < 2:
            raise OptionError(f"sequence length {seq_len}: a window needs at least 2 tokens to predict one")
        if packing not in ("joined", "documents"):
            raise OptionError(f"packing {packing!r}: expected joined or documents")
        if bos and tokenizer.bos_token_id is None:
            raise OptionError("this tokenizer has no beginning-of-sequence token: leave --bos out")
        self.seq_len, self.packing = seq_len, packing
        self._prefix = [tokenizer.bos_token_id] if bos else []
        self._documents = iter(documents)
        self._tokenizer = tokenizer
        self._buffer: list[int] = []  # joined token ids, used up to _start
        self._start = 0

    def take(self, n_windows: int) -> Windows:
        """The next `n_windows` windows, or all that are left (perhaps none) when the text ends before."""
        return self._take(lambda windows, tokens: windows >= n_windows)

    def take_tokens(self, n_tokens: int) -> Windows:
        """As many whole windows as fit into `n_tokens` tokens, at least one; fewer when the text ends before."""
        return self._take(lambda windows, tokens: windows > 0 and tokens + self.seq_len > n_tokens)

    def _take(self, enough: Callable[[int, int], bool]) -> Windows:
        pieces: list[list[int]] = []
        tokens = 0
        while not enough(len(pieces), tokens):
            if self.packing == "joined" and len(self._buffer) - self._start >= self.seq_len:
                pieces.append(self._buffer[self._start : self._start + self.seq_len])
                self._start += self.seq_len
                tokens += self.seq_len
                continue
            document = next(self._documents, None)
            if document is None:
                break
            ids = self._prefix + self._tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"]
            if self.packing == "joined":
                self._buffer = self._buffer[self._start :] + ids
                self._start = 0
            elif len(ids) >= 2:
                pieces.append(ids[: self.seq_len])
                tokens += len(pieces[-1])
        return _padded(pieces, self.seq_len)


def predicted_bytes(windows: Windows, tokenizer: Any) -> int:
    """UTF-8 bytes of the text that is predicted: all tokens but each window's first.

    Models of different tokenizers are compared by their loss per byte. A character that a window cuts in two counts as
    three bytes.
    """
    texts = tokenizer.batch_decode(
        [row[1:length].tolist() for row, length in zip(windows.ids, windows.lengths.tolist(), strict=True)],
        skip_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )
    return sum(len(text.encode()) for text in texts)


def check_vocabulary(windows: Windows, vocabulary: int) -> None:
    """Raise `TextError` when a token id has no row in an embedding of `vocabulary` rows."""
    if len(windows) and int(windows.ids.max()) >= vocabulary:
        raise TextError(
            f"token id {int(windows.ids.max())} in a model of {vocabulary} tokens: this tokenizer belongs to another "
            "model; name the right one with --tokenizer"
        )


def _padded(pieces: list[list[int]], seq_len: int) -> Windows:
    width = max((len(piece) for piece in pieces), default=seq_len)
    ids = torch.zeros(len(pieces), width, dtype=torch.int64)
    for row, piece in zip(ids, pieces, strict=True):
        row[: len(piece)] = torch.tensor(piece)
    return Windows(ids, torch.tensor([len(piece) for piece in pieces], dtype=torch.int64))
