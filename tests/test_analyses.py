"""The questions of the papers, asked of tables whose answers are known: budgets, rates, averages, decay, schedules."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from analyses import averaging, figures, in_the_wild, other_quantizers, peak_rate, schedules, weight_decay
from analyses import budgets as budgets_question
from analyses.drawn.figure import Figure, Panel, Series
from analyses.drawn.interactive import draw as draw_page
from analyses.lab.claims import FAILS, HOLDS, OPEN, Verdict
from analyses.question import Answer, Missing
from analyses.read import windows
from analyses.read.known import Known, mean
from analyses.read.tables import pooled
from made_studies import (
    GPTQ3,
    GPTQ4,
    averages,
    budgets,
    cooldown,
    peaks,
    public,
    row,
    stable,
    study,
)


def verdicts(answer: Answer) -> dict[str, str]:
    """What was said of each claim, one quantizer each."""
    return {each.claim: each.says for each in answer.verdicts}


def about(answer: Answer, claim: str) -> Verdict:
    return next(each for each in answer.verdicts if each.claim == claim)


@pytest.mark.parametrize("question", figures.QUESTIONS, ids=figures.name_of)
def test_without_rows_every_question_says_what_it_needs(question):
    with pytest.raises(Missing) as missing:
        question.answer([])
    assert missing.value.what
    assert "landscape " in missing.value.command


@pytest.mark.parametrize(
    ("made", "flat", "rises", "alike"),
    [
        ({"rise": 0.01, "growth": 0.0}, HOLDS, HOLDS, HOLDS),
        ({"rise": -0.01, "growth": 0.7}, FAILS, FAILS, FAILS),
        ({"rise": 0.01, "growth": 0.25}, OPEN, HOLDS, OPEN),
        ({"rise": 0.0, "growth": 0.0}, HOLDS, OPEN, HOLDS),
    ],
)
def test_budgets(tmp_path, made, flat, rises, alike):
    answer = budgets_question.answer([study(tmp_path, budgets(**made))])
    assert verdicts(answer) == {
        "error flat at a constant rate": flat,
        "error rises in the cooldown": rises,
        "end errors alike across budgets": alike,
    }
    assert len(about(answer, "error rises in the cooldown").contrasts) == 2 * 5


def test_what_cooldowns_are_compared_with_is_the_stable_run_around_their_start(tmp_path):
    answer = budgets_question.answer([study(tmp_path, budgets(rise=0.01))])
    contrasts = about(answer, "error rises in the cooldown").contrasts
    for contrast in contrasts:
        assert contrast.interval.value == pytest.approx(0.01, abs=3e-4)
        # Windows give 1e-5; that checkpoints scatter by 1e-4 must be in it.
        assert 2e-4 < contrast.interval.high - contrast.interval.low < 1e-3
    assert sum(each.interval.low < 0.01 < each.interval.high for each in contrasts) >= 8


def test_a_stable_run_that_ends_long_before_a_cooldown_begins_says_nothing_of_it(tmp_path):
    rows = [each for each in budgets() if not each["run"].startswith("stable") or each["step"] <= 8000]
    answer = budgets_question.answer([study(tmp_path, rows)])
    starts = {each.what for each in about(answer, "error rises in the cooldown").contrasts}
    assert starts == {"from step 4,000", "from step 7,000"}


def test_a_cooldown_is_drawn_from_where_it_comes(tmp_path):
    rows = [each for each in budgets() if (each["run"], each["step"]) != ("stable-0.003-s1", 10_000)]
    (figure,) = budgets_question.answer([study(tmp_path, rows)]).figures
    begun = [round(each.x[0] / 2048e-6) for each in figure.rows[0][0].series if each.label == "cooldown"]
    assert begun == [1000, 4000, 7000, 9000, 13_000, 16_000]  # that of 10,000 at the checkpoint before


def test_errors_have_bands_and_losses_none(tmp_path):
    (figure,) = budgets_question.answer([study(tmp_path, budgets())]).figures
    loss, error = figure.rows[0][0], figure.rows[1][0]
    assert all(not each.low for each in loss.series)  # windows move all losses together
    for each in error.series:
        assert np.subtract(each.high, each.y) == pytest.approx(100 * 1.96e-5, rel=1e-3)
        assert np.subtract(each.y, each.low) == pytest.approx(100 * 1.96e-5, rel=1e-3)


def test_a_cooldown_that_was_not_measured_to_its_end_does_not_count(tmp_path):
    rows = [each for each in budgets() if each["learning_rate"] > 1e-5 or "from4000" in each["run"]]
    with pytest.raises(Missing, match="cooldowns of one length"):
        budgets_question.answer([study(tmp_path, rows)])


@pytest.mark.parametrize(
    ("errors", "says"), [((0.05, 0.03, 0.02), HOLDS), ((0.02, 0.03, 0.05), FAILS), ((0.05, 0.02, 0.02), OPEN)]
)
def test_peak_rate(tmp_path, errors, says):
    answer = peak_rate.answer([study(tmp_path, peaks(*errors))])
    assert verdicts(answer) == {"ordered by peak rate": says}
    assert f"{errors[-1] / errors[0]:.3g}"[:4] in answer.numbers[0]
    assert "0.48" in answer.numbers[0]  # the paper's, at 4 bits


@pytest.mark.parametrize(("loss_hat", "says"), [(3.0, HOLDS), (3.06, FAILS), (3.03, OPEN)])
def test_averaging_is_judged_by_its_best_window(tmp_path, loss_hat, says):
    answer = averaging.answer([study(tmp_path, averages(loss_hat))])
    assert verdicts(answer)["LAWA beats decay"] == says
    assert verdicts(answer)["LAWA beats decay before quantization"] == FAILS
    assert "judged by lawa-20x500" in about(answer, "LAWA beats decay").rule
    assert averaging.windows(study(tmp_path, averages(loss_hat))) == ["lawa-5x500", "lawa-20x500"]


def test_averages_are_no_points_of_a_run(tmp_path):
    table = study(tmp_path, averages(3.0))
    assert len(table.line("stable-0.003-s1", GPTQ4)) == 10
    assert len(table.line("stable-0.003-s1", GPTQ4, "lawa-5x500")) == 1
    assert len(table.checkpoints) == len(table.rows) - 4


@pytest.mark.parametrize(("effect", "says"), [(-0.005, HOLDS), (0.005, FAILS), (0.0, OPEN)])
def test_weight_decay(tmp_path, effect, says):
    rows = [
        row(f"adamlh-{decay:g}-s{seed}", 5000, delta_q=0.02 + effect * (0, -1, 2)[place], loss=2.5 + place)
        for seed in (1, 2)
        for place, decay in enumerate((0.0, 0.0005, 0.1))
    ]
    rows += [row("adamw-0.01-0.03-s1", 5000, delta_q=0.0321)]
    answer = weight_decay.answer([study(tmp_path, rows)])
    assert verdicts(answer) == {"weight decay reduces the error": says}
    lowest, product = answer.numbers
    assert lowest.count("λ 0 (L(Θ̂) = 2.550)") == 2  # the least error is not the least loss
    assert "λ 0.03" in product
    assert "3.21 %" in product
    with pytest.raises(Missing):
        weight_decay.answer([study(tmp_path, rows[:1])])


@pytest.mark.parametrize(("ratio", "says"), [(1.0, HOLDS), (1.3, FAILS), (1.1, OPEN)])
def test_schedules_compare_at_one_budget_and_rate(tmp_path, ratio, says):
    rows = []
    for seed in (1, 2):
        rows += stable(f"stable-0.003-s{seed}", lambda step: {"delta_q": 0.01}, 9000)
        rows += cooldown(f"decay-0.003-s{seed}-from9000", 9000, 1000, lambda step, gone: {"delta_q": 0.02})
        rows += cooldown(f"decay-0.003-s{seed}-from5000", 5000, 5000, lambda step, gone: {"delta_q": 0.5})
        rows += cooldown(f"decay-0.01-s{seed}-from9500", 9500, 500, lambda step, gone: {"delta_q": 0.9}, peak=0.01)
        rows.append(row(f"cosine-0.003-s{seed}-to10001", 10_001, delta_q=0.02 * ratio, delta_q_se=1e-4))
    answer = schedules.answer([study(tmp_path, rows)])
    assert verdicts(answer) == {"cosine ends as WSD does": says}
    assert about(answer, "cosine ends as WSD does").contrasts[0].interval.value == pytest.approx(ratio - 1)


@pytest.mark.parametrize(("sign", "says"), [(1, HOLDS), (-1, FAILS)])
def test_other_quantizers(tmp_path, sign, says):
    errors = [0.01 + 0.001 * (place * 7 % 20) for place in range(20)]
    rows = [row("run", 100 * place, GPTQ4, error) for place, error in enumerate(errors, 1)]
    rows += [row("run", 100 * place, GPTQ3, 0.2 + 2 * sign * error) for place, error in enumerate(errors, 1)]
    answer = other_quantizers.answer([study(tmp_path, rows)])
    assert verdicts(answer) == {"quantizers order checkpoints alike": says}
    raw, changes = about(answer, "quantizers order checkpoints alike").contrasts
    assert raw.interval.value == pytest.approx(sign)
    assert changes.what.endswith("changes")


@pytest.mark.parametrize(("rise", "says"), [(0.01, HOLDS), (-0.01, FAILS)])
def test_in_the_wild(tmp_path, rise, says):
    answer = in_the_wild.answer([study(tmp_path, public("org/model", rise) + budgets())])
    assert verdicts(answer) == {"error rises as the rate decays": says}
    (contrast,) = answer.verdicts[0].contrasts
    assert (contrast.what, contrast.interval.value) == ("org/model", pytest.approx(rise))
    with pytest.raises(Missing, match="Hub"):
        in_the_wild.answer([study(tmp_path, budgets())])


def test_a_public_run_whose_rate_is_unknown_is_drawn_and_not_judged(tmp_path):
    rows = [each | {"learning_rate": None} for each in public("org/model", 0.01)]
    answer = in_the_wild.answer([study(tmp_path, rows)])
    assert answer.verdicts == ()
    assert len(answer.figures[0].rows[1][0].series[0].x) == 10


def test_of_several_tables_the_fullest_is_drawn(tmp_path):
    small, large = study(tmp_path, peaks(0.05, 0.03), "small"), study(tmp_path, peaks(0.02, 0.03, 0.05), "large")
    other = study(tmp_path, budgets(), "other")  # more rows, and none of these
    for tables in ([small, large, other], [other, large, small]):
        answer = peak_rate.answer(tables)
        assert answer.tables == ("large",)
        assert verdicts(answer) == {"ordered by peak rate": FAILS}


def test_quantizers_are_compared_where_there_are_most_of_them(tmp_path):
    errors = [0.01 + 0.001 * (step * 7919 % 13) for step in range(40)]
    many = [row("run", step, quantizer, errors[step]) for step in range(1, 40) for quantizer in (GPTQ4, GPTQ3)]
    several = [row("run", step, f"rtn-w{bits}-g64", errors[step]) for step in range(1, 9) for bits in (2, 3, 4)]
    answer = other_quantizers.answer([study(tmp_path, many, "many"), study(tmp_path, several, "several")])
    assert answer.tables == ("several",)
    assert any("changes from one" in figure.caption for figure in answer.figures)
    few = [*several, *(row("other", 1, f"rtn-w{bits}-g64", errors[1]) for bits in (2, 3, 4, 8))]
    ends = [each for each in few if each["step"] == 1]
    answer = other_quantizers.answer([study(tmp_path, ends, "ends")])
    assert not any("changes from one" in figure.caption for figure in answer.figures)


def test_words_of_an_axis_are_broken_on_the_page_as_on_paper():
    panel = Panel((Series([0, 1], [1.0, 2.0]),), "", "y", ticks=((0.0, "rtn\nw4"), (1.0, "<b>\nw3")))
    drawn = draw_page(Figure("one", "", ((panel,),)))
    assert list(drawn.layout.xaxis.ticktext) == ["rtn<br>w4", "&lt;b&gt;<br>w3"]


def test_a_checkpoint_in_two_tables_is_one(tmp_path):
    """Rows of one run in two studies are one run; what both measured alike counts once."""
    whole = [row("run", step, identity=f"i{step}") for step in (1, 2, 3)] + [row("other", 1, identity="o1")]
    ends = [row("run", 3, quantizer, identity="i3", trace=5.0, loss=4.0) for quantizer in (GPTQ4, GPTQ3)]
    elsewhere = [row("run", 1, identity="j1"), row("run", 2), row("run", 2)]
    tables = [study(tmp_path, *each) for each in ((whole, "whole"), (ends, "ends"), (elsewhere, "elsewhere"))]
    rows, runs, names = pooled(tables, "delta_q")
    assert [(each["step"], each["quantizer"], run) for each, run in zip(rows, runs, strict=True)] == [
        (1, GPTQ4, "whole/run"),
        (2, GPTQ4, "whole/run"),
        (3, GPTQ4, "whole/run"),
        (1, GPTQ4, "whole/other"),
        (3, GPTQ3, "whole/run"),
        (1, GPTQ4, "elsewhere/run"),
        (2, GPTQ4, "elsewhere/run"),
        (2, GPTQ4, "elsewhere/run"),
    ]
    assert names == ("whole", "ends", "elsewhere")
    assert (rows[2]["trace"], rows[2]["loss"]) == (5.0, 3.0)  # the later table fills what the earlier one lacks


def test_windows_that_two_checkpoints_share_drop_out_of_their_difference(tmp_path):
    generator = np.random.default_rng(0)
    shared = generator.normal(300, 30, 400)
    rows = []
    for number, shift in enumerate((0.0, 1.0), 1):
        own = shared + shift + generator.normal(0, 0.1, 400)
        key = f"{number}" * 64
        found = {"sum": list(own), "sum_hat": list(own * 1.02), "predicted": [100] * 400}
        path = tmp_path / "made" / "evaluations" / f"run-step{number}-{key[:8]}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"key": key, "windows": found}))
        loss, error = own.mean() / 100, own.std() / 100 / 20
        rows.append(row("run", number, loss=loss, loss_se=error, delta_q=0.02, evaluation_key=key))
    table = study(tmp_path, rows)
    one, other = (Known.of(table, each, "loss") for each in table.rows)
    assert np.linalg.norm(one.parts) == pytest.approx(one.error, rel=1e-6)
    assert (other - one).value == pytest.approx(0.01, abs=1e-3)
    assert (other - one).error == pytest.approx(np.sqrt(2) * 0.1 / 100 / 20, rel=0.1)
    same = other.over(one)
    assert same.value == pytest.approx(1 + 0.01 / 3, abs=1e-3)
    # What is left of a window: two draws of 0.1 of its own, and the 1/300 by which the sums differ, of a spread of 30.
    assert same.error == pytest.approx(np.sqrt(3) * 0.1 / 300 / 20, rel=0.1)
    ratio = Known.of(table, table.rows[0], "perplexity_ratio")
    sums = np.array(json.loads(next(path.parent.glob("*step1*")).read_text())["windows"]["sum"]) / 100
    drawn = [np.exp(0.02 * generator.choice(sums, 400).mean()) for _ in range(2000)]
    assert np.linalg.norm(ratio.parts) == pytest.approx(np.std(drawn), rel=0.1)
    assert windows.keep(table.folder) == 2
    shutil.rmtree(path.parent)
    windows._kept.cache_clear()
    again = Known.of(table, table.rows[1], "loss") - Known.of(table, table.rows[0], "loss")
    assert again.error == pytest.approx((other - one).error, rel=1e-3)
    (table.folder / windows.FILE).unlink()
    windows._kept.cache_clear()
    apart = Known.of(table, table.rows[1], "loss") - Known.of(table, table.rows[0], "loss")
    assert apart.error == pytest.approx(np.hypot(one.error, other.error), rel=1e-6)
    assert apart.error > 20 * again.error


def test_errors_to_first_order_are_those_of_a_bootstrap(tmp_path):
    generator = np.random.default_rng(0)
    tokens = generator.integers(50, 150, 300)
    sums = 3 * tokens * generator.lognormal(0, 0.2, 300)
    hat = sums * 1.02 + generator.normal(0.5, 2, 300)
    content = {"key": "k" * 64, "windows": {"sum": list(sums), "sum_hat": list(hat), "predicted": tokens.tolist()}}
    path = tmp_path / "made" / "evaluations" / "run-kkkkkkkk.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    other = content | {"key": "k" * 8 + "x" * 56, "windows": {name: [1, 2] for name in content["windows"]}}
    path.with_name("a-kkkkkkkk.json").write_text(json.dumps(other))  # the same name, but another evaluation
    table = study(tmp_path, [row("run", 1, evaluation_key="k" * 64)])
    drawn = generator.integers(300, size=(4000, 300))
    s, h, n = (values[drawn].sum(axis=1) for values in (sums, hat, tokens))
    again = {"loss": s / n, "loss_hat": h / n, "delta_q": h / s - 1, "perplexity_ratio": np.exp((h - s) / n)}
    for column, values in again.items():
        known = Known.of(table, table.rows[0], column)
        assert np.linalg.norm(known.parts) == pytest.approx(values.std(), rel=0.06), column


def test_the_mean_of_checkpoints_knows_how_they_scatter():
    same, apart = (mean([Known(value, 0.1) for value in values]) for values in ((2, 2, 2), (1, 2, 3)))
    assert same.value == apart.value == 2
    assert same.error == pytest.approx(0.1 / np.sqrt(3))
    assert apart.error == pytest.approx(np.hypot(0.1 / np.sqrt(3), 1 / np.sqrt(3)))
