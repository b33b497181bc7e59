"""Training data: a text tokenized once into a file of ids that is mapped into memory, and the order it is read in.

    runs/tokens/<text>-<key>/ids.bin       uint16 where the vocabulary fits, else uint32
                             facts.json    text, tokens, documents, fingerprint, SHA-256 of all files; written last
                             tokenizer…    as transformers saves it

Which windows a step takes depends on the recipe's seed and the step alone: a fork, a resumed run and a run on more
ranks see the same data.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from landscape.errors import TextError
from landscape.storage.digests import broken, check_digest, sums, with_digest
from landscape.storage.files import disk_errors, write_whole

FACTS, IDS = "facts.json", "ids.bin"
END = "<|endoftext|>"
_DOCUMENTS = 32  # tokenized at a time
_CHARACTERS = 100_000_000


@dataclass(frozen=True)
class TokenFile:
    """A tokenized text.

    Attributes:
        ids: all tokens, mapped into memory.
        fingerprint: SHA-256 over them.
        folder: where it lies, with its tokenizer.
        documents: how many there were.
    """

    ids: np.ndarray
    fingerprint: str
    folder: Path
    documents: int


def open_tokens(folder: Path) -> TokenFile | None:
    """The tokenized text in `folder`; None where there is none, not all of it, or not as it was written."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        check_digest(facts)
        if broken(folder, facts["files"]):
            return None
        ids = np.memmap(folder / IDS, dtype=facts["dtype"], mode="r")
        return TokenFile(ids, facts["fingerprint"], folder, facts["documents"]) if len(ids) == facts["tokens"] else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None  # of a type without a size, say


def write_tokens(
    folder: Path,
    documents: Iterable[str],
    tokenizer: Any,
    facts: dict[str, Any],
    separate: bool = True,
    limit: int | None = None,
    on_tokens: Callable[[int, int], None] = lambda done, total: None,
) -> TokenFile:
    """Tokenize `documents` into `folder`, each followed by the end-of-text token if `separate`, up to `limit` tokens.

    Raises:
        TextError: no document, or no end-of-text token to separate them.
        StoreError: the disk is full, or the place cannot be written.
    """
    end = tokenizer.eos_token_id
    if separate and end is None:
        raise TextError("this tokenizer has no end-of-text token: leave documents unseparated with separate=false")
    dtype = np.dtype("<u2" if len(tokenizer) <= 1 << 16 else "<u4")
    digest, tokens, read = hashlib.sha256(), 0, 0
    with disk_errors(folder, "--data"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tokenizer.save_pretrained(folder)
        with open(folder / IDS, "wb") as file:
            for block in _blocks(documents):
                rows = tokenizer(block, add_special_tokens=False, verbose=False)["input_ids"]
                read += len(block)
                ids = np.fromiter(chain.from_iterable([*row, end] if separate else row for row in rows), dtype=dtype)
                ids = ids[: None if limit is None else limit - tokens]
                tokens += len(ids)
                digest.update(ids.tobytes())
                file.write(ids.tobytes())
                on_tokens(tokens, limit or 0)
                if limit is not None and tokens >= limit:
                    break
    if not tokens:
        shutil.rmtree(folder)
        raise TextError("the text to train on is empty: give one with documents in it")
    about = facts | {"dtype": dtype.str, "tokens": tokens, "documents": read, "fingerprint": digest.hexdigest()}
    about["files"] = sums(folder)
    write_whole(folder / FACTS, json.dumps(with_digest(about), indent=1).encode())
    opened = open_tokens(folder)
    assert opened is not None
    return opened


def train_tokenizer(documents: Iterable[str], vocabulary: int) -> Any:
    """A byte-level byte-pair tokenizer of `vocabulary` tokens, like Pythia's but smaller. Deterministic.

    It sees the first hundred million characters: a few thousand merges do not need more, and a text may be endless.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_first(documents, _CHARACTERS), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=END, unk_token=END)


class Order:
    """Which windows each step takes.

    `shuffled`: an epoch goes through all windows once, in an order of its own, cut from a place of its own so that no
    boundary repeats. `drawn`: every window begins anywhere, with repetition.
    """

    def __init__(self, ids: np.ndarray, seq_len: int, batch_size: int, steps: int, seed: int, kind: str) -> None:
        """Raise `TextError` where the text is too short for one batch."""
        self.ids, self.seq_len, self.batch_size, self.seed = ids, seq_len, batch_size, seed
        self.windows = (len(ids) - seq_len) // seq_len  # one fewer than fit, for the place an epoch is cut from
        if self.windows < 1:
            raise TextError(f"the text to train on has {len(ids):,} tokens: too few for windows of {seq_len}")
        self._drawn = None
        if kind == "drawn":
            generator = torch.Generator().manual_seed(seed)
            self._drawn = torch.randint(len(ids) - seq_len, (steps, batch_size), generator=generator).numpy()
        self._epoch = lru_cache(maxsize=2)(self._shuffled)

    def starts(self, step: int) -> np.ndarray:
        """Where the windows of update `step` begin, int64 (batch_size,)."""
        if self._drawn is not None:
            return self._drawn[step]
        first = step * self.batch_size
        places = [divmod(index, self.windows) for index in range(first, first + self.batch_size)]
        return np.array([self._epoch(epoch)[place] for epoch, place in places], dtype=np.int64)

    def batch(self, starts: np.ndarray) -> Tensor:
        """The windows that begin there, int64 (len(starts), seq_len)."""
        rows = np.stack([self.ids[start : start + self.seq_len] for start in starts])
        return torch.from_numpy(rows.astype(np.int64))

    def _shuffled(self, epoch: int) -> np.ndarray:
        random = np.random.default_rng([self.seed, epoch])
        return random.integers(self.seq_len) + self.seq_len * random.permutation(self.windows)


def _first(documents: Iterable[str], characters: int) -> Iterator[str]:
    for document in documents:
        yield document
        characters -= len(document)
        if characters <= 0:
            return


def _blocks(documents: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(documents)
    while block := list(islice(iterator, _DOCUMENTS)):
        yield block
