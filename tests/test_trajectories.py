"""Trajectories: what a revision's name says, what its family published, what is on the Hub."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from checkpoints import save
from hub import commit, run, serve
from landscape.training import SHAPES
from landscape.trajectories import Point, family, parse
from landscape.trajectories.families import _content

SNIPPET = """
from dataclasses import astuple
from landscape.errors import ModelError
from landscape.trajectories import points

def outcome(model):
    notes = []
    try:
        return {"points": [astuple(point) for point in points(model, notes.append)], "notes": notes}
    except ModelError as error:
        return {"error": str(error)}
"""


@pytest.mark.parametrize(
    ("name", "stage", "step", "tokens"),
    [
        ("stage1-step40000-tokens84B", "stage1", 40000, 84e9),
        ("stage2-ingredient3-step23852-tokens51B", "stage2-ingredient3", 23852, 51e9),
        ("stage1-step-40000", "stage1", 40000, None),
        ("lc-4k-to-32k-step-4000", "lc-4k-to-32k", 4000, None),
        ("lc-32k-to-64k-step-20000", "lc-32k-to-64k", 20000, None),
        ("step50000-tokens210B", "", 50000, 210e9),
        ("step2627139-tokens15T", "", 2627139, 15e12),
        ("step738020-tokens3095B", "", 738020, 3095e9),
        ("step10-tokens2.5M", "", 10, 2.5e6),
        ("step10-tokens600K", "", 10, 6e5),
        ("step10-tokens600", "", 10, 600.0),
        ("iter_0058000", "", 58000, None),
        ("ckpt_010", "", 10, None),
        ("step143000", "", 143000, None),
        ("step0", "", 0, None),
        ("global_step1000", "", 1000, None),
        ("checkpoint-500", "", 500, None),
        ("143000", "", 143000, None),
        ("step1000-ema", "ema", 1000, None),
        ("main", "main", None, None),
        ("it-SFT", "it-SFT", None, None),
        ("it-mid-training", "it-mid-training", None, None),
    ],
)
def test_the_parts_of_a_name(name: str, stage: str, step: int | None, tokens: float | None) -> None:
    found = parse(name)
    assert (found.name, found.stage, found.step, found.tokens) == (name, stage, step, tokens)


OLMO = "allenai/OLMo-2-{}".format
OPEN_SCI = "open-sci/open-sci-ref-v0.01-1.7b-nemotron-hq-1T-4096"
SMOL = "HuggingFaceTB/SmolLM3-3B-checkpoints"
STAGE1_7B = 3e-5 + 2.7e-4 * (1 + math.cos(math.pi * (928646 * 2**22 - 8388608000) / (5e12 - 8388608000))) / 2
APERTUS_LEFT = (15e12 - (1678000 * 2**22 + (2_528_530 - 1_678_000) * 2**23)) / (403905806 * 4096)  # about a half


@pytest.mark.parametrize(
    ("repository", "revision", "rate"),
    [
        ("EleutherAI/pythia-160m", "step0", 0.0),
        ("EleutherAI/pythia-160m", "step715", 3e-4),  # half of a warm-up of 1430
        ("EleutherAI/pythia-160m", "step1430", 6e-4),
        ("EleutherAI/pythia-160m", "step72930", 3e-4),  # half of 143,000 after it, on the way to 0
        ("EleutherAI/pythia-160m", "step115000", 3e-4 * (1 + math.cos(math.pi * 113570 / 143000))),
        ("EleutherAI/pythia-160m", "step116000", 6e-5),  # and no further than to a tenth
        ("EleutherAI/pythia-160m", "step143000", 6e-5),
        ("EleutherAI/pythia-160m-deduped", "step143000", 6e-5),
        ("EleutherAI/pythia-160m-seed7", "step143000", 6e-5),
        ("EleutherAI/pythia-14m", "step1430", 1e-3),
        ("EleutherAI/pythia-31m", "step1430", 1e-3),
        ("EleutherAI/pythia-70m-deduped", "step1430", 1e-3),
        ("EleutherAI/pythia-410m-seed1", "step1430", 3e-4),
        ("EleutherAI/pythia-1b", "step1430", 2.5e-4),
        ("EleutherAI/pythia-1.4b", "step1430", 2e-4),
        ("EleutherAI/pythia-2.8b", "step1430", 1.6e-4),
        ("EleutherAI/pythia-6.9b", "step1430", 1.2e-4),
        ("EleutherAI/pythia-12b-deduped", "step143000", 1.2e-5),
        ("allenai/OLMo-1B", "step1000-tokens4B", 2e-4),
        ("allenai/OLMo-1B", "step739328-tokens3101B", 4e-5),
        ("allenai/OLMo-7B", "step1000-tokens4B", None),  # what was published is not what was done
        (OLMO("0425-1B"), "stage1-step2000-tokens4B", 2e-4),  # half of 8.4B tokens
        (OLMO("0425-1B"), "stage1-step1907359-tokens4001B", 7.4487e-5),  # where its stage 2 begins, the file says
        (OLMO("0425-1B"), "stage2-ingredient1-step23852-tokens51B", 0.0),
        (OLMO("1124-7B"), "stage1-step1000-tokens5B", 1.5e-4),
        (OLMO("1124-7B"), "stage1-step928646-tokens3896B", STAGE1_7B),
        (OLMO("1124-7B"), "stage2-ingredient2-step0-tokens0B", 6.1499e-5),
        (OLMO("1124-7B"), "stage2-ingredient3-step11931-tokens50B", 0.0),
        (OLMO("1124-13B"), "stage1-step596057-tokens5001B", 9e-5),
        (OLMO("1124-13B"), "stage2-ingredient1-step11931-tokens100B", 0.0),
        (OLMO("1124-13B"), "stage2-ingredient4-step35773-tokens300B", 0.0),
        (OLMO("1124-13B"), "stage2-ingredient4-step17882-tokens150B", 9e-5 * (1 - 17882 * 2**23 / 3e11)),
        (OLMO("1124-13B"), "main", None),
        (OLMO("0325-32B"), "stage1-step2000-tokens17B", 6e-4),
        (OLMO("0325-32B"), "stage1-step721901-tokens6056B", 6.6232e-5),
        (OLMO("0325-32B"), "stage2-ingredient3-step11921-tokens101B", 6.6232e-5 * 2 / 3),
        (OLMO("0325-32B"), "stage2-ingredient4-step11921-tokens101B", 0.0),
        (SMOL, "stage1-step-40000", 2e-4),
        (SMOL, "stage2-step-4200000", 2e-4 * (1 - 1999 / 522000)),
        (SMOL, "stage3-step-4459001", 1e-4),
        (SMOL, "lc-4k-to-32k-step-1000", 2e-5),
        (SMOL, "lc-4k-to-32k-step-20000", 0.0),
        (SMOL, "lc-32k-to-64k-step-11500", 1e-5),
        (SMOL, "it-SFT", None),
        ("swiss-ai/Apertus-8B-2509", "step2000-tokens8B", 5.5e-5),
        ("swiss-ai/Apertus-8B-2509", "step2400000-tokens13T", 1.1e-4),
        ("swiss-ai/Apertus-8B-2509", "step2528530-tokens14T", 1.1e-5 + 9.9e-5 * (1 - math.sqrt(1 - APERTUS_LEFT))),
        (OPEN_SCI, "iter_0012500", 2e-3),
        (OPEN_SCI, "iter_0193764", 4e-3),
        (OPEN_SCI, "iter_0217984", 2e-3),
        ("LLM360/Amber", "ckpt_000", 3e-4 * 762 / 2000),
        ("LLM360/Amber", "ckpt_359", 3e-5),
        ("EleutherAI/pythia-160m", "other-step1430", None),  # a stage that nobody told of
    ],
)
def test_published_rates(repository: str, revision: str, rate: float | None) -> None:
    known = family(repository)
    assert known is not None
    found = known.learning_rate(parse(revision))
    assert found == (rate if rate is None else pytest.approx(rate, rel=1e-4, abs=1e-9))


@pytest.mark.parametrize(
    ("repository", "revision", "tokens"),
    [
        ("EleutherAI/pythia-70m", "step143000", 299_892_736_000),  # as its README has it
        (OLMO("0425-1B"), "stage1-step40000-tokens84B", 83_886_080_000),
        (OLMO("1124-7B"), "stage1-step928646-tokens3896B", 928646 * 2**22),
        (OLMO("1124-7B"), "stage2-ingredient1-step1000-tokens5B", 929646 * 2**22),  # not the 5B of its name
        (OLMO("1124-7B"), "main", None),
        (SMOL, "stage3-step-4720000", 4_720_000 * 2_359_296),
        (SMOL, "lc-4k-to-32k-step-4000", 4_724_000 * 2_359_296),
        (SMOL, "lc-32k-to-64k-step-4000", 4_744_000 * 2_359_296),
        (SMOL, "it-SFT", None),
        ("swiss-ai/Apertus-8B-2509", "step50000-tokens210B", 50_000 * 2**22),
        ("swiss-ai/Apertus-8B-2509", "step1678001-tokens7T", 1_678_000 * 2**22 + 2**23),
        ("swiss-ai/Apertus-8B-2509", "step2627139-tokens15T", pytest.approx(15e12, rel=1e-6)),
        (OPEN_SCI, "iter_0242204", pytest.approx(1e12, rel=1e-5)),
        ("LLM360/Amber", "ckpt_000", 762 * 2240 * 2048),
        ("LLM360/Amber", "ckpt_359", pytest.approx(1259.13e9, rel=1e-3)),  # as its README has it
        ("allenai/OLMo-7B", "step1000-tokens4B", 4e9),
        ("allenai/OLMo-1B", "step738020-tokens3095B", pytest.approx(3095e9, rel=2e-4)),
    ],
)
def test_tokens_since_the_beginning(repository: str, revision: str, tokens: Any) -> None:
    known = family(repository)
    assert known is not None and known.tokens(parse(revision)) == tokens


def test_what_is_another_model_has_no_family() -> None:
    for name in ("EleutherAI/pythia-160m-v0", "allenai/OLMo-2-1124-7B-Instruct", "HuggingFaceTB/SmolLM3-3B", "me/run"):
        assert family(name) is None


def test_every_figure_of_a_family_has_a_source() -> None:
    entries = {"tokens_per_step", "updates_per_step", "main", "final", "tokenizer"}
    for name, content in _content().items():
        figures = entries & content.keys()
        figures |= {"rate"} if any("rate" in stage for stage in content["stages"]) else set()
        figures |= {"after"} if any("after" in stage for stage in content["stages"]) else set()
        assert figures <= content["source"].keys(), name
        for stage in content["stages"]:
            rate = dict(stage.get("rate", {}))
            assert rate.pop("unit", "steps") in ("steps", "tokens") and rate.pop("shape", "linear") in SHAPES
            assert all(isinstance(value, int | float) for value in rate.values()), name  # YAML takes 3e-4 for a word


def hub_outcomes(names: dict[str, list[str]], home: Path, *models: str, gated: bool = False, **more: Any) -> list[Any]:
    """What `points` says of `models` where the Hub has repositories with these revisions."""
    folder = save(home / "any")
    served = {
        model: {
            "refs": {name: commit(name) for name in revisions},
            "files": {commit(name): folder for name in revisions},
            "gated": gated,
        }
        for model, revisions in names.items()
    }
    with serve(served) as hub:
        found: list[Any] = run(
            f"{SNIPPET}\nreport([outcome(model) for model in {models!r}])", hub.address, home, **more
        )
        assert not hub.downloaded()  # a list needs no weights
    for outcome in found:
        outcome["points"] = [Point(*values) for values in outcome.get("points", [])]
    return found


def test_hub_a_family_in_order(tmp_path: Path) -> None:
    names = ["main", "step1000", "step143000", "step0", "step512"]
    (found,) = hub_outcomes({"EleutherAI/pythia-160m": names}, tmp_path, "EleutherAI/pythia-160m")
    line = found["points"]

    assert [point.revision for point in line] == ["step0", "step512", "step1000", "step143000"]  # main is the last one
    assert line[-1] == Point(
        "EleutherAI/pythia-160m@step143000",
        "step143000",
        "",
        143000,
        299_892_736_000,
        pytest.approx(6e-5),
        "EleutherAI/pythia-160m",
    )
    assert found["notes"] == []


def test_hub_stages_and_a_soup(tmp_path: Path) -> None:
    names = [
        "main",
        "stage2-ingredient4-step35773-tokens300B",
        "stage2-ingredient1-step11931-tokens100B",
        "stage1-step596057-tokens5001B",
        "stage2-ingredient1-step1000-tokens9B",
        "stage1-step38000-tokens319B",
        "a-branch",
    ]
    (found,) = hub_outcomes({OLMO("1124-13B"): names}, tmp_path, OLMO("1124-13B"))
    line = found["points"]

    assert [point.revision for point in line] == [
        "stage1-step38000-tokens319B",
        "stage1-step596057-tokens5001B",
        "stage2-ingredient1-step1000-tokens9B",
        "stage2-ingredient1-step11931-tokens100B",
        "stage2-ingredient4-step35773-tokens300B",
        "main",
    ]
    assert line[-1] == Point(f"{OLMO('1124-13B')}@main", "main", "main", None, None, None, OLMO("1124-13B"))
    assert (line[2].stage, line[2].step, line[2].tokens) == ("stage2-ingredient1", 1000, 597057 * 2**23)
    assert len(found["notes"]) == 1 and "a-branch" in found["notes"][0]


def test_hub_a_repository_without_main_and_what_it_led_to(tmp_path: Path) -> None:
    names = ["it-soup-APO", "lc-4k-to-32k-step-4000", "it-SFT", "stage1-step-80000", "stage1-step-40000", "notes"]
    names += ["stage3-step-4240000", "it-mid-training", "it-LC-expert", "lc-32k-to-64k-step-4000"]
    (found,) = hub_outcomes({SMOL: names}, tmp_path, SMOL)
    line = found["points"]

    assert [point.revision for point in line] == [
        *("stage1-step-40000", "stage1-step-80000", "stage3-step-4240000", "lc-4k-to-32k-step-4000"),
        *("lc-32k-to-64k-step-4000", "it-mid-training", "it-SFT", "it-soup-APO", "it-LC-expert", None),
    ]
    assert line[-1] == Point(
        "HuggingFaceTB/SmolLM3-3B", None, "final", None, None, None, SMOL, "HuggingFaceTB/SmolLM3-3B"
    )
    assert {point.tokenizer for point in line} == {"HuggingFaceTB/SmolLM3-3B"} and {point.run for point in line} == {
        SMOL
    }


def test_hub_main_in_place_of_a_revision_that_is_not_there(tmp_path: Path) -> None:
    names = {"LLM360/Amber": ["main", "ckpt_358", "ckpt_000"], "EleutherAI/pythia-70m": ["main"]}
    amber, pythia = hub_outcomes(names, tmp_path, *names)

    assert [(point.revision, point.step) for point in amber["points"]] == [
        ("ckpt_000", 0),
        ("ckpt_358", 358),
        ("main", 359),
    ]
    assert amber["points"][-1].learning_rate == pytest.approx(3e-5)
    assert [(point.reference, point.step) for point in pythia["points"]] == [("EleutherAI/pythia-70m", 143000)]


def test_hub_names_of_nobody(tmp_path: Path) -> None:
    names = {
        "me/run": ["main", "wip", "phase10-step5", "phase2-step70-tokens3B", "phase2-step9", "8000"],
        "me/model": ["main", "wip"],
        "me/branches": ["wip", "old"],
    }
    several, alone, branches, nothing, no_id = hub_outcomes(names, tmp_path, *names, "me/nothing", "./nothing")

    assert [(point.revision, point.stage, point.step, point.tokens) for point in several["points"]] == [
        ("8000", "", 8000, None),
        ("phase2-step9", "phase2", 9, None),
        ("phase2-step70-tokens3B", "phase2", 70, 3e9),
        ("phase10-step5", "phase10", 5, None),
        ("main", "main", None, None),
    ]
    assert all(point.learning_rate is None for point in several["points"])
    assert any("rates are unknown" in note for note in several["notes"]) and any("wip" in n for n in several["notes"])
    assert alone["points"] == [Point("me/model", "main", "", None, None, None, "me/model")]
    assert branches["error"] == "model me/branches: none of its revisions is main or tells a step; it has wip, old"
    assert "model me/nothing: no such directory, and no such model on the Hub; check the spelling" in nothing["error"]
    assert "model ./nothing: no such directory, and not a Hub id" in no_id["error"]


def test_hub_gated(tmp_path: Path) -> None:
    (found,) = hub_outcomes({"me/secret": ["main", "step5"]}, tmp_path, "me/secret", gated=True)
    assert found["error"] == "model me/secret: gated; accept its terms on the Hub and log in with `hf auth login`"


@pytest.mark.parametrize("offline", [True, False])
def test_hub_out_of_reach(tmp_path: Path, offline: bool) -> None:
    refs = tmp_path / "huggingface" / "hub" / "models--EleutherAI--pythia-160m" / "refs"
    refs.mkdir(parents=True)
    for name in ("step1000", "main"):
        (refs / name).write_text(commit(name))
    with serve({}) as gone:
        pass
    code = f"{SNIPPET}\nreport([outcome(name) for name in ('EleutherAI/pythia-160m', 'me/other')])"
    cached, nothing = run(code, gone.address, tmp_path, offline=offline)

    assert [values[:4] for values in cached["points"]] == [
        ["EleutherAI/pythia-160m@step1000", "step1000", "", 1000],
        ["EleutherAI/pythia-160m@main", "main", "", 143000],
    ]
    assert ("HF_HUB_OFFLINE is set" if offline else "ConnectError") in nothing["error"]
    assert "model me/other: no such directory" in nothing["error"] and "check the spelling" in nothing["error"]
