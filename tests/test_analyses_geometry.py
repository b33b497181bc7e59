"""The questions about curvature, predictions, laws, slices, forks and 4 bits, asked of tables with known answers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from analyses import basin, forks, int4_collapse, loss_and_accuracy, prediction, scaling_laws, sharpness_over_training
from analyses.figures import draw_all
from analyses.lab.claims import FAILS, HOLDS, OPEN
from analyses.prediction import score
from analyses.question import Answer, Missing
from made_studies import GPTQ3, GPTQ4, INT4, INT8, PEAK, budgets, cooldown, peaks, row, stable, study
from viewer_slices import ATTRIBUTES, Recipe


def verdicts(answer: Answer) -> dict[str, str]:
    return {each.claim: each.says for each in answer.verdicts}


def numbers_of(sentence: str) -> list[float]:
    return [float(each) for each in re.findall(r"[-+]?\d+\.?\d*(?:e[-+]\d+)?", sentence)]


@pytest.mark.parametrize(("after", "says"), [(3.0, HOLDS), (0.3, FAILS), (1.0, OPEN)])
def test_sharpness_rises(tmp_path, after, says):
    answer = sharpness_over_training.answer([study(tmp_path, budgets(before=1.0, after=after))])
    assert verdicts(answer)["tr H rises in the cooldown"] == says
    assert verdicts(answer)["λ_max rises in the cooldown"] == says
    if after == 3.0:
        assert verdicts(answer)["tr H breaks where the rate does"] == HOLDS


def test_sharpness_that_breaks_long_before_the_cooldown(tmp_path):
    def cells(step: int, gone: float = 0.0) -> dict:
        level = 100 * np.exp(max(0, step - 6000) / 3000) * (1 + 0.001 * (step * 7919 % 13))
        return {"trace": level, "trace_se": 0.1, "lambda_max": level, "lambda_max_residual": 0.1}

    rows = stable("stable-0.003-s1", cells)
    for start in (4000, 16_000):
        rows += cooldown(f"decay-0.003-s1-from{start}", start, 4000, cells, points=4)
    answer = sharpness_over_training.answer([study(tmp_path, rows)])
    assert verdicts(answer)["tr H breaks where the rate does"] == FAILS
    (contrast,) = next(each for each in answer.verdicts if each.claim.startswith("tr H breaks")).contrasts
    assert contrast.interval.value == pytest.approx(-0.5, abs=0.1)  # 6,000 less 16,000 of 20,000 steps


@pytest.mark.parametrize(("levels", "says"), [((9.0, 6.0, 3.0), HOLDS), ((3.0, 6.0, 9.0), FAILS)])
def test_sharpness_by_peak_rate(tmp_path, levels, says):
    cells = {
        "step_length": [1.0, 1.5, 2.0],
        "trace": list(levels),
        "trace_se": [0.1] * 3,
        "lambda_max": list(levels),
        "lambda_max_residual": [0.1] * 3,
    }
    rows = budgets(before=1.0, after=3.0) + peaks(0.03, 0.03, 0.03, **cells)
    answer = sharpness_over_training.answer([study(tmp_path, list({(r["run"], r["step"]): r for r in rows}.values()))])
    assert verdicts(answer)["tr H ordered by peak rate"] == says
    assert verdicts(answer)["λ_max ordered by peak rate"] == says
    assert [figure.name for figure in answer.figures] == ["sharpness_over_training", "sharpness_over_training-peaks"]
    factor = f"{levels[2] / levels[0]:.3g}"
    assert f"0.01 against 0.001, {GPTQ4}: tr H × {factor}" in answer.numbers[0]
    assert "‖δ‖² × 4.00" in answer.numbers[0]


def test_sharpness_by_peak_rate_needs_no_budgets(tmp_path):
    cells = {"trace": [9.0, 3.0], "trace_se": [0.1] * 2}
    answer = sharpness_over_training.answer([study(tmp_path, peaks(0.03, 0.03, **cells))])
    assert verdicts(answer) == {"tr H ordered by peak rate": HOLDS}
    with pytest.raises(Missing, match="curvature"):
        sharpness_over_training.answer([study(tmp_path, peaks(0.03, 0.03), "flat")])


def test_sharpness_that_the_error_follows(tmp_path):
    rows = budgets(before=1.0, after=3.0)
    for each in rows:  # error as curvature: hand in hand, whatever is taken out
        each["delta_q"] = 0.01 * each["trace"] / 100
    (together,) = (s for s in sharpness_over_training.answer([study(tmp_path, rows)]).numbers if "tr H" in s)
    assert "raw 1.00" in together
    assert "differenced 1.00" in together
    assert "partial 1.00" in together


def quantized(gap4: list[float], gap8: list[float], kurtosis: list[float]) -> list[dict]:
    """A run whose rate decays, with these perplexity gaps and this kurtosis."""
    rows = []
    for place, (four, eight, shape) in enumerate(zip(gap4, gap8, kurtosis, strict=True), 1):
        for quantizer, gap in ((INT4, four), (INT8, eight)):
            rate = PEAK * (1 - place / len(gap4)) + 1e-9
            cells = {"perplexity_ratio": 1 + gap, "excess_kurtosis": shape, "learning_rate": rate}
            rows.append(row("trunk-s1", 1000 * place, quantizer, **cells))
    return rows


def test_int4_collapse(tmp_path):
    up = [0.05 + 0.001 * (place % 3) for place in range(10)] + [0.05 * 1.5**place for place in range(10)]
    flat, down = [0.002] * 20, [2 - 0.05 * place for place in range(20)]
    answer = int4_collapse.answer([study(tmp_path, quantized(up, flat, down))])
    assert set(verdicts(answer).values()) == {HOLDS}
    (turn,) = answer.numbers
    assert 8000 <= numbers_of(turn.replace(",", "").partition("step")[2])[0] <= 13_000
    falling = [0.5 * 0.9**place for place in range(20)]
    answer = int4_collapse.answer([study(tmp_path, quantized(falling, up, down), "other")])
    assert verdicts(answer) == {
        "the INT4 gap grows late in training": FAILS,
        "the INT8 gap stays small": FAILS,
        "kurtosis falls while the gap grows": FAILS,
    }


def test_what_counts_is_growth_since_the_middle_of_the_run(tmp_path):
    gaps = [3.0] * 3 + [0.05] * 9 + [0.05 + 0.1 * place for place in range(8)]  # a bad beginning is no collapse
    small = [0.002] * 10 + [0.02] + [0.002] * 9
    answer = int4_collapse.answer([study(tmp_path, quantized(gaps, small, [1.0 - place for place in range(20)]))])
    assert verdicts(answer)["the INT4 gap grows late in training"] == HOLDS
    assert verdicts(answer)["the INT8 gap stays small"] == FAILS  # one checkpoint is enough


def test_int4_needs_both_quantizers_and_a_rate_that_decays(tmp_path):
    rows = quantized([0.1] * 10, [0.001] * 10, [1.0] * 10)
    short = quantized([0.1] * 7, [0.001] * 7, [1.0] * 7)
    constant = [each | {"learning_rate": PEAK} for each in rows]
    for lacking in ([each for each in rows if each["quantizer"] == INT4], short, constant):
        with pytest.raises(Missing, match="rate decays"):
            int4_collapse.answer([study(tmp_path, lacking)])


def forked(shifts: dict[int, float], arm: str = "oli") -> list[dict]:
    """Forks on several orders of the data, the gap of `arm` shifted by so much in each."""
    rows = []
    for order, shift in shifts.items():
        for step in range(1000, 9000, 1000):
            gap = 0.10 + 0.001 * (step * order * 7919 % 5)
            rows.append(row(f"fork-cosine-d{order}", step, INT4, perplexity_ratio=1 + gap))
            noise = 0.0005 * (step * 31 % 3)
            rows.append(row(f"fork-{arm}-d{order}", step, INT4, perplexity_ratio=1 + gap + shift + noise))
    return rows


@pytest.mark.parametrize(
    ("shifts", "says"),
    [
        ({1: -0.020, 2: -0.021, 3: -0.022}, HOLDS),
        ({1: 0.020, 2: 0.021, 3: 0.022}, FAILS),
        ({1: -0.001, 2: -0.002, 3: -0.03}, OPEN),  # what counting every checkpoint calls significant
    ],
)
def test_forks_count_an_order_of_the_data_once(tmp_path, shifts, says):
    answer = forks.answer([study(tmp_path, forked(shifts))])
    assert verdicts(answer) == {"OLI's cool phases are better than cosine": says}
    (sentence,) = answer.numbers
    assert "n = 3" in sentence
    assert "n = 24" in sentence
    mean = 100 * (
        np.mean(list(shifts.values())) + np.mean([0.0005 * (step * 31 % 3) for step in range(1000, 9000, 1000)])
    )
    assert answer.verdicts[0].contrasts[0].interval.value == pytest.approx(mean)
    if says == OPEN:
        clustered, naive = (
            numbers_of(part.partition("points [")[2])[:2] for part in sentence.split("every checkpoint")
        )
        assert naive[1] < 0 < clustered[1]


def test_warm_restarts_are_judged_too(tmp_path):
    answer = forks.answer([study(tmp_path, forked({1: 0.02, 2: 0.021, 3: 0.02}, "sgdr"))])
    assert verdicts(answer) == {"warm restarts are better than cosine": FAILS}


@pytest.mark.parametrize(("sign", "says"), [(1, HOLDS), (-1, FAILS)])
def test_loss_and_accuracy(tmp_path, sign, says):
    errors = [0.01 + 0.001 * (place * 7 % 20) for place in range(20)]
    rows = [
        row("run", 100 * place, delta_q=error, accuracy_drop=0.1 + sign * 2 * error, accuracy_drop_se=0.01)
        for place, error in enumerate(errors, 1)
    ]
    answer = loss_and_accuracy.answer([study(tmp_path, rows)])
    assert verdicts(answer) == {"accuracy falls where the error grows": says}
    with pytest.raises(Missing, match="accuracy"):
        loss_and_accuracy.answer([study(tmp_path, budgets())])


def slices(folder: Path, curvatures: tuple[float, ...], lengths: tuple[float, ...]) -> None:
    """Slices through the ends of runs with rising peak rates: bowls of these curvatures, steps of these lengths."""
    folder.mkdir(parents=True)
    for place, (curvature, length) in enumerate(zip(curvatures, lengths, strict=True)):
        peak = (0.001, 0.003, 0.01)[place]

        def bowl(a: float, b: float, curvature: float = curvature) -> float:
            return 2.5 + curvature * (a * a + 2 * b * b) / 2

        attributes = {**ATTRIBUTES, "model": f"decay-{peak:g}-s1-from2000@step3000", "quantizer": GPTQ3}
        recipe = Recipe(bowl, attributes=attributes, adaptive=True, first_length=length, second_length=2 * length)
        recipe.make(folder / f"{peak:g}.h5")


@pytest.mark.parametrize(
    ("curvatures", "lengths", "wider", "longer"),
    [
        ((0.9, 0.6, 0.3), (0.2, 0.4, 0.6), HOLDS, HOLDS),
        ((0.3, 0.6, 0.9), (0.6, 0.4, 0.2), FAILS, FAILS),
        ((0.5, 0.5, 0.5), (0.2, 0.4, 0.6), OPEN, HOLDS),
    ],
)
def test_basin(tmp_path, curvatures, lengths, wider, longer):
    table = study(tmp_path, peaks(0.05, 0.03))
    slices(table.folder / basin.FOLDER, curvatures, lengths)
    answer = basin.answer([table])
    assert verdicts(answer) == {
        "‖Θ_K − Θ_{K−1}‖ grows with the peak rate": longer,
        "‖Θ_K − Θ̂_K‖ grows with the peak rate": longer,
        "flatter towards Θ̂_K with the peak rate": wider,
        "flatter in the plane with the peak rate": wider,
    }
    (panels,) = answer.figures[0].rows
    assert [panel.title for panel in panels] == ["peak rate 0.001", "peak rate 0.003", "peak rate 0.01"]
    draw_and_look(tmp_path, answer)


def draw_and_look(folder: Path, answer: Answer) -> None:
    """Panels of fields share axes and one scale of colours."""
    from analyses.drawn.interactive import draw as draw_page
    from analyses.drawn.printed import draw as draw_paper

    (figure,) = answer.figures
    axes = draw_paper(figure).axes
    assert len(axes) == len(figure.rows[0]) + 1  # and the colour bar
    assert len({axis.get_ylim() for axis in axes[:-1]}) == len({axis.get_xlim() for axis in axes[:-1]}) == 1
    page = draw_page(figure)
    assert page.layout.coloraxis.cmin == figure.colours.low
    assert {trace.coloraxis for trace in page.data if trace.type == "contour"} == {"coloraxis"}


def law_rows(tokens_exponent: float, kappa: float = 1.0) -> list[dict]:
    """Added losses as the law of Kumar has them, with little noise, and what curvature predicts of them."""
    rows = []
    generator = np.random.default_rng(1)
    for number in range(8):
        for step in range(1000, 11_000, 1000):
            for quantizer, bits in ((GPTQ4, 4), (GPTQ3, 3)):
                delta = 1e-3 * (2048.0 * step) ** tokens_exponent * np.exp(-bits / 0.6)
                delta *= np.exp(0.01 * generator.standard_normal())
                predicted = (delta / 1.2) ** (1 / kappa)
                rows.append(row(f"run-{number}", step, quantizer, delta_l=delta, predicted=predicted))
    return rows


@pytest.mark.parametrize(("exponent", "inside"), [(0.507, "inside"), (0.1, "outside")])
def test_scaling_laws(tmp_path, exponent, inside):
    answer = scaling_laws.answer([study(tmp_path, law_rows(exponent, kappa=0.8))])
    kumar, ouyang, curvature = answer.numbers
    assert kumar.startswith("law of Kumar, gptq-g64, all checkpoints")
    tokens, precision = (part for part in kumar.split(";")[:2])
    assert numbers_of(tokens.partition("γ_D =")[2])[0] == pytest.approx(exponent, abs=0.005)
    assert f"published: 0.5068, {inside}" in tokens
    value, low, high, _ = numbers_of(precision.partition("=")[2])
    assert low < value < high
    assert value == pytest.approx(0.6, abs=0.01)
    assert numbers_of(curvature.partition("κ =")[2])[0] == pytest.approx(0.8, abs=0.001)
    assert "c = 1.2 " in curvature
    assert "b =" in ouyang


def test_a_law_is_drawn_where_it_was_fitted(tmp_path):
    answer = scaling_laws.answer([study(tmp_path, law_rows(0.5, kappa=0.8))])
    for panel in answer.figures[0].rows[0]:
        for series in panel.series:
            assert (
                np.abs(np.log(np.divide(series.x, series.y))).max() < 0.15 if panel.x_title != "law of Ouyang" else True
            )
            assert len(series.x) == 80


def test_scores():
    real = [0.1, 0.2, 0.3, 0.4]
    exact, double = score(real, real), score([2 * each for each in real], real)
    assert (exact.r_squared, exact.r_squared_log, exact.rank, exact.bias, exact.broken) == (1, 1, 1, 1, 0)
    assert (double.rank, double.bias, double.broken) == (1, 2, 1)
    assert double.r_squared == pytest.approx(1 - 0.3 / 0.05)  # Σ change² over Σ (change − mean)²
    spread = np.log(real).var() * 4
    assert double.r_squared_log == pytest.approx(1 - 4 * np.log(2) ** 2 / spread)
    assert score([-0.1, 0.2, 0.3, 0.4], real).r_squared_log == 1  # of those that have a logarithm
    assert np.isnan(score([0.1], [0.1]).rank)


@pytest.mark.parametrize(("factor", "reach"), [(1.0, 2.0), (0.8, 0.5)])
def test_prediction(tmp_path, factor, reach):
    rows = []
    for step in range(100, 2100, 100):
        for quantizer, size in ((GPTQ4, 0.03), (GPTQ3, 0.3)):
            change = size * (1 + step / 1000)
            guess = {"predicted": factor * change, "predicted_outputs": None, "predicted_length": change * 3}
            rows.append(row("run", step, quantizer, change=change, quadratic_reach=reach, **guess))
    answer = prediction.answer([study(tmp_path, rows)])
    said = {sentence.partition(":")[0]: sentence for sentence in answer.numbers}
    assert f"median ratio to the change {factor:.3f}" in said["predicted, all"]
    assert f"more than a tenth off in {0 if factor == 1 else 100}%" in said["predicted, all"]
    assert "median ratio to the change 3.000" in said[f"predicted_length, {GPTQ3}"]
    assert "predicted_outputs, all" not in said
    assert f"as far as {reach:.2f} δ" in said["3 bits"]
    assert f"in {100 if reach < 1 else 0}%" in said["3 bits"]


def test_what_correlated_errors_gain(tmp_path):
    rows = [
        row("run", step, quantizer, change=0.1 * step, predicted=0.1 * step, predicted_diagonal=0.1 * step * each,
            delta_h_delta=0.2 * step)
        for step in range(1, 9)
        for quantizer, each in ((GPTQ4, 2.0), (GPTQ3, 1.0))
    ]  # fmt: skip
    numbers = prediction.answer([study(tmp_path, rows)]).numbers
    assert f"{GPTQ4}: δᵀHδ is 0.500 of Σ H_ii δ_i² (median of 8" in "".join(numbers)
    assert f"{GPTQ3}: δᵀHδ is 1.000 of" in "".join(numbers)
    assert any(each.startswith("predicted_diagonal, all: R² ") for each in numbers)


def test_laws_about_bits_need_several(tmp_path):
    """A quantizer that exists at one number of bits says nothing of a law over bits."""
    rows = [
        row("run", step, quantizer, 2.0 ** -int(quantizer[-5]) * step / 1000, predicted=0.01 * step)
        for step in range(1, 30)
        for quantizer in ("rtn-w4-g64", "rtn-w3-g64", "awq-w4-g64")
    ]
    numbers = scaling_laws.answer([study(tmp_path, rows)]).numbers
    assert {each.partition(", ")[2].partition(",")[0] for each in numbers} == {"rtn-g64"}


def test_numbers_that_are_not_finite_are_left_out_of_predictions(tmp_path):
    rows = [row("run", step, change=0.1 * step, predicted=0.1 * step) for step in range(1, 9)]
    rows += [row("run", step, change=0.1, predicted=float("nan")) for step in range(9, 12)]
    rows += [row("run", 12, change=float("inf"), predicted=0.1)]
    answer = prediction.answer([study(tmp_path, rows)])
    assert "R² 1.000" in answer.numbers[0]
    assert "of 8 rows" in answer.numbers[0]


def test_one_question_that_lacks_rows_does_not_stop_the_others(tmp_path):
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), soft_wrap=True)
    missing = draw_all([study(tmp_path, forked({1: -0.02, 2: -0.021}))], tmp_path / "out", console)
    assert "in_the_wild" in missing  # the first
    assert "forks" not in missing
    assert (tmp_path / "out" / "forks.html").is_file()
    assert "OLI's cool phases" in console.file.getvalue()
