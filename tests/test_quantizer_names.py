"""The grammar of quantizer names: what parses, what it says, what is refused and how."""

from __future__ import annotations

import pytest

from landscape.errors import QuantizerError
from landscape.quantize import Quantizer, parse
from landscape.quantize.names import fits


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rtn-w4-g128", Quantizer("rtn", 4, 128)),
        ("rtn-w4-g128-asym", Quantizer("rtn", 4, 128, levels="asym")),
        ("rtn-w2-g32-minmax", Quantizer("rtn", 2, 32, levels="minmax")),
        ("rtn-w8-channel", Quantizer("rtn", 8)),
        ("rtn-w8-tensor-clip-rot", Quantizer("rtn", 8, per_tensor=True, clip=True, rotate=True)),
        ("rtn-w3-g64-outliers0.01", Quantizer("rtn", 3, 64, outliers=0.01)),
        ("gptq-w3-g128", Quantizer("gptq", 3, 128)),
        ("gptq-w2-channel-asym-noact", Quantizer("gptq", 2, levels="asym", act_order=False)),
        ("gptq-w3-g64-static-damp0.01", Quantizer("gptq", 3, 64, static_groups=True, damping=0.01)),
        ("awq-w4-g128-asym-clip", Quantizer("awq", 4, 128, levels="asym", clip=True)),
        ("smoothquant-w8-channel-a0.8", Quantizer("smoothquant", 8, migration=0.8)),
        ("hqq-w4-g64", Quantizer("hqq", 4, 64)),
        ("int8", Quantizer("int8", 8)),
        ("int8-t4.5", Quantizer("int8", 8, threshold=4.5)),
        ("nf4-b128-dq", Quantizer("nf4", 4, block=128, double=True)),
        ("fp4", Quantizer("fp4", 4)),
        ("gptq-w4-g128@gptqmodel", Quantizer("gptq", 4, 128, engine="gptqmodel")),
        (
            "gptq-w3-g128+down_proj=w8+layers.0=float",
            Quantizer("gptq", 3, 128, overrides=(("down_proj", "w8"), ("layers.0", "float"))),
        ),
    ],
)
def test_names_parse_and_print_back(name: str, expected: Quantizer):
    assert parse(name) == expected
    assert str(expected) == name


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("rtn-w4-g128-sym", "rtn-w4-g128"),
        ("gptq-g128-noact-asym-w3", "gptq-w3-g128-asym-noact"),
        ("gptq-w3-g128-damp.05", "gptq-w3-g128"),
        ("int8-t6.0", "int8"),
        ("nf4-dq-b64", "nf4-dq"),
    ],
)
def test_one_quantizer_has_one_canonical_name(name: str, canonical: str):
    assert str(parse(name)) == canonical
    assert parse(canonical) == parse(name)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("quip-w4-g128", "unknown method 'quip'"),
        ("gtpq-w3-g128", "unknown method 'gtpq'"),
        ("", "unknown method ''"),
        ("rtn", "expected w2 to w8, which it does not say"),
        ("rtn-w1-g128", "'w1' does not fit rtn"),
        ("rtn-w9-channel", "'w9' does not fit rtn"),
        ("rtn-w4", "expected g{size}, channel or tensor"),
        ("rtn-w4-g0", "'g0' does not fit rtn"),
        ("rtn-w4-w3-g64", "'w3' does not fit rtn"),
        ("rtn-w4-g128-noact", "'noact' does not fit rtn"),
        ("awq-w4-g128-rot", "'rot' does not fit awq"),
        ("hqq-w4-g64-asym", "'asym' does not fit hqq"),
        ("nf4-w4", "'w4' does not fit nf4"),
        ("rtn-w4-g128-outliers2", "'outliers2' does not fit rtn"),
        ("smoothquant-w8-channel-a1.5", "'a1.5' does not fit smoothquant"),
        ("gptq-w4-g128@vllm", "unknown engine 'vllm'; expected @gptqmodel or @llmcompressor"),
        ("rtn-w4-g128+down_proj", "'down_proj' is no +PATTERN=words"),
        ("rtn-w4-g128+=w8", "'=w8' is no +PATTERN=words"),
        ("rtn-w4-g128+down_proj=noact", "'noact' does not fit rtn"),
    ],
)
def test_other_names_are_refused_with_the_grammar(name: str, complaint: str):
    with pytest.raises(QuantizerError) as error:
        parse(name)
    assert complaint in str(error.value)
    assert f"quantizer {name}: " in str(error.value)


def test_overrides_hold_where_they_fit_and_the_last_one_counts():
    quantizer = parse("gptq-w3-g128+down_proj=w8-channel+layers.0=float+layers.0.mlp=w4")
    ordinary = quantizer.at("model.layers.1.self_attn.q_proj")
    assert ordinary is not None and str(ordinary) == "gptq-w3-g128"
    wide = quantizer.at("model.layers.1.mlp.down_proj")
    assert wide is not None and str(wide) == "gptq-w8-channel"
    assert quantizer.at("model.layers.0.self_attn.q_proj") is None
    inner = quantizer.at("model.layers.0.mlp.down_proj")
    assert inner is not None and str(inner) == "gptq-w4-g128"


@pytest.mark.parametrize(
    ("pattern", "fitting"),
    [
        ("down_proj", True),
        ("mlp.down_proj", True),
        ("layers.1", True),
        ("layers.*.mlp", True),
        ("down_*", True),
        ("layers.11", False),
        ("down", False),
        ("proj", False),
        ("model.layers.1.mlp.down_proj.weight", False),
    ],
)
def test_a_pattern_is_whole_parts_of_a_name(pattern: str, fitting: bool):
    assert fits(pattern, "model.layers.1.mlp.down_proj") is fitting


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("rtn-w4-g32", False),
        ("rtn-w4-g32-outliers0.01", True),
        ("gptq-w4-g32", True),
        ("awq-w4-g32", True),
        ("smoothquant-w8-channel", True),
        ("int8", True),
        ("hqq-w4-g32", False),
        ("nf4", False),
        ("nf4-rot", False),
    ],
)
def test_which_methods_look_at_activations(name: str, needs: bool):
    assert parse(name).needs_calibration is needs
    assert parse(name).weight_half is (name in ("int8", "smoothquant-w8-channel"))
