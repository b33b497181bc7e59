"""Other engines for the same names: `gptq-w4-g128@llmcompressor`, `gptq-w4-g128@gptqmodel`.

They quantize a copy of the model and give dense weights back, to be compared with ours. Each is an extra, and they
conflict with each other: an environment has one of them at most.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from landscape.errors import MissingExtraError, QuantizerError
from landscape.quantize.layers import Layer
from landscape.quantize.names import Quantizer
from landscape.tokens import Windows

Dense = dict[str, Tensor]
_TOKENIZER = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "*.model")


def quantize_with(
    quantizer: Quantizer, model: nn.Module, layers: Sequence[Layer], windows: Windows, batch_size: int
) -> Dense:
    """Dense matrices in the stored layout by parameter name, from the engine that `quantizer` names.

    Raises:
        QuantizerError: what the engine cannot do, or this adapter cannot ask of it.
        MissingExtraError: the engine is not installed.
    """
    plain = Quantizer(
        "gptq",
        quantizer.bits,
        quantizer.group_size,
        act_order=quantizer.act_order,
        static_groups=quantizer.static_groups,
        damping=quantizer.damping,
        engine=quantizer.engine,
    )
    if quantizer != plain:
        raise QuantizerError(
            f"quantizer {quantizer}: {quantizer.engine} is asked for symmetric gptq only; expected "
            f"gptq-w{{bits}}-(g{{size}}|channel)[-noact][-static][-damp{{x}}]@{quantizer.engine}"
        )
    if bool((windows.lengths < windows.ids.shape[1]).any()):
        raise QuantizerError(f"quantizer {quantizer}: windows of one length wanted; use --calibration-packing joined")
    with _quiet():
        return _ENGINES[quantizer.engine](quantizer, model, layers, windows, batch_size)


def _llmcompressor(
    quantizer: Quantizer, model: nn.Module, layers: Sequence[Layer], windows: Windows, batch_size: int
) -> Dense:
    if quantizer.act_order and quantizer.group_size and not quantizer.static_groups:
        raise QuantizerError(
            f"quantizer {quantizer}: llmcompressor forms no groups in the order of activations; add -static or -noact"
        )
    try:
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
        from datasets import Dataset
        from llmcompressor import oneshot
        from llmcompressor.modifiers.quantization import GPTQModifier
    except ImportError as error:
        raise MissingExtraError("llmcompressor", "llmcompressor", f"quantizer {quantizer}") from error
    order = "static" if quantizer.act_order else None
    grid = QuantizationArgs(
        num_bits=quantizer.bits,
        group_size=quantizer.group_size,
        strategy="group" if quantizer.group_size else "channel",
        symmetric=True,
        actorder=order,
    )
    work = copy.deepcopy(model)
    rows = [{"input_ids": row.tolist(), "attention_mask": [1] * len(row)} for row in windows.ids]
    oneshot(
        model=work,
        dataset=Dataset.from_list(rows),
        recipe=GPTQModifier(
            dampening_frac=quantizer.damping,
            actorder=order,
            config_groups={"all": QuantizationScheme(targets=[layer.name for layer in layers], weights=grid)},
        ),
        max_seq_length=windows.ids.shape[1],
        num_calibration_samples=len(rows),
        batch_size=batch_size,
    )
    made = dict(work.named_parameters())
    return {layer.weight_name: made[layer.weight_name].detach().to(layer.weight.dtype).clone() for layer in layers}


def _gptqmodel(
    quantizer: Quantizer, model: nn.Module, layers: Sequence[Layer], windows: Windows, batch_size: int
) -> Dense:
    os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")  # it takes too many otherwise, and stops
    try:
        from gptqmodel import GPTQModel, QuantizeConfig
    except ImportError as error:
        raise MissingExtraError("gptqmodel", "gptqmodel", f"quantizer {quantizer}") from error
    config = QuantizeConfig(
        bits=quantizer.bits,
        group_size=quantizer.group_size or -1,
        sym=True,
        desc_act=quantizer.act_order and not quantizer.static_groups,
        act_group_aware=False,
        static_groups=quantizer.static_groups,
        damp_percent=quantizer.damping,
        offload_to_disk=False,
        format="gptq_v2",  # the older format stores zero points less one, which dequantize_weight does not undo
    )
    device = str(next(model.parameters()).device)
    # It takes a checkpoint, not a model, and leaves a log where it runs.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        model.save_pretrained(folder)  # type: ignore[operator]
        for pattern in _TOKENIZER:  # it wants one, and never uses it
            for path in Path(str(model.name_or_path)).glob(pattern):
                shutil.copy(path, folder)
        work = GPTQModel.load(folder, config, device=device, dtype=torch.float32)
        rows = [{"input_ids": row[None], "attention_mask": torch.ones_like(row[None])} for row in windows.ids]
        work.quantize(rows, batch_size=batch_size)
    modules = dict(work.model.named_modules())
    made = {layer: modules[layer.name].dequantize_weight().T.to(layer.weight.dtype) for layer in layers}
    return {layer.weight_name: layer.as_matrix(matrix).contiguous().clone() for layer, matrix in made.items()}


_ENGINES: dict[str, Callable[..., Dense]] = {"llmcompressor": _llmcompressor, "gptqmodel": _gptqmodel}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave the terminal to our own progress."""
    sink: Any = io.StringIO()
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            yield
    finally:
        logging.disable(before)
