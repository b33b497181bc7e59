"""Load a causal language model and its tokenizer, safely and completely.

float32 masters whatever the file holds; safetensors or `weights_only` pickles; a tensor that is missing from the file
is an error, not a random initialization.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

from landscape.errors import ModelError, OptionError
from landscape.models.checkpoint import Checkpoint
from landscape.models.claims import check_claims, check_size

_OF_TRANSFORMERS_5 = "TokenizersBackend"
_VOCABULARIES = ("tokenizer.json", "*.model", "vocab.*", "*.tiktoken")


def load_model(
    checkpoint: Checkpoint, device: str = "cpu", attention: str = "sdpa", remote_code: bool = False
) -> nn.Module:
    """The model at `checkpoint` in float32, in evaluation mode, on `device`.

    `attention` is transformers' name of the kernel: `sdpa` for losses and slices, `eager` where second derivatives
    are taken.

    Raises:
        ModelError: not a causal language model that transformers can load, damaged, or incomplete.
    """
    return read_model(checkpoint, torch.float32, attention, remote_code).to(device)


def read_model(checkpoint: Checkpoint, dtype: torch.dtype, attention: str, remote_code: bool) -> nn.Module:
    """The model at `checkpoint` in `dtype`, in evaluation mode; of safetensors in that dtype, mapped into memory.

    Raises:
        ModelError: as `load_model`.
    """
    from transformers import AutoModelForCausalLM

    check_claims(checkpoint)
    if not remote_code:
        check_size(checkpoint)
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            checkpoint.folder,
            dtype=dtype,
            attn_implementation=attention,
            trust_remote_code=remote_code,
            output_loading_info=True,
        )
    except Exception as error:  # transformers raises many kinds; each means that these files do not make a model
        hint = "; if you trust its author, allow its own code with --remote-code" if "remote_code" in str(error) else ""
        raise ModelError(
            f"model {checkpoint}: cannot be loaded ({type(error).__name__}: {first_line(error)}){hint}"
        ) from error
    missing = sorted(info["missing_keys"]) + sorted(name for name, *_ in info.get("mismatched_keys", ()))
    if missing:
        raise ModelError(
            f"model {checkpoint}: {len(missing)} tensors are not in the file or have another shape ({missing[0]}, …); "
            "expected a complete checkpoint"
        )
    return model.eval()


def load_tokenizer(checkpoint: Checkpoint, remote_code: bool = False) -> Any:
    """The tokenizer that lies beside the weights of `checkpoint`.

    Raises:
        ModelError: there is none, or it cannot be read.
    """
    import transformers

    # Without any of these, transformers makes an empty tokenizer of the model's type and says nothing.
    if not any(path for pattern in _VOCABULARIES for path in checkpoint.folder.glob(pattern)):
        raise ModelError(f"model {checkpoint}: no tokenizer beside its weights; name one with --tokenizer")
    if (checkpoint.folder / "config.json").is_file():  # which transformers reads, too
        check_claims(checkpoint)
    try:
        if _is_of_transformers_5(checkpoint) and not hasattr(transformers, _OF_TRANSFORMERS_5):
            return transformers.PreTrainedTokenizerFast.from_pretrained(checkpoint.folder)
        return transformers.AutoTokenizer.from_pretrained(checkpoint.folder, trust_remote_code=remote_code)
    except BaseException as error:  # a panic of the library, which is in Rust, is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise ModelError(
            f"model {checkpoint}: its tokenizer cannot be loaded ({first_line(error)}); name one with --tokenizer"
        ) from error


def _is_of_transformers_5(checkpoint: Checkpoint) -> bool:
    """Whether it was saved under the name that every tokenizer has there, which transformers 4 does not know."""
    path = checkpoint.folder / "tokenizer_config.json"
    if not path.is_file():
        return False
    said = json.loads(path.read_text(encoding="utf-8"))
    return isinstance(said, dict) and said.get("tokenizer_class") == _OF_TRANSFORMERS_5


def vocabulary_size(model: nn.Module) -> int:
    """Rows of the input embedding: every token id must be below."""
    return int(model.get_input_embeddings().weight.shape[0])  # type: ignore[operator, union-attr, arg-type]


def context_length(checkpoint: Checkpoint, otherwise: int = 2048, remote_code: bool = False) -> int:
    """The longest window the model was built for, by its configuration; does not load the weights.

    Raises:
        ModelError: no configuration that transformers knows.
    """
    from transformers import AutoConfig

    check_claims(checkpoint)
    try:
        config = AutoConfig.from_pretrained(checkpoint.folder, trust_remote_code=remote_code)
    except Exception as error:  # transformers raises many kinds; each means that this is no model it knows
        raise ModelError(f"model {checkpoint}: unreadable configuration ({first_line(error)})") from error
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        length = getattr(config, name, None)
        if isinstance(length, int) and length > 0:
            return length
    return otherwise


def pick_device(name: str) -> str:
    """`auto` means the GPU where there is one; any other name must be a device torch can use here.

    Raises:
        OptionError: there is no such device.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros((), device=name)
    except (RuntimeError, AssertionError) as error:
        raise OptionError(f"device {name}: torch cannot use it here ({first_line(error)}); try --device cpu") from error
    return name


def first_line(error: BaseException) -> str:
    """What a library said, in short."""
    return (str(error).strip().splitlines() or ["no reason given"])[0][:300]
