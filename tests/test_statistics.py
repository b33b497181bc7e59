"""Statistics along runs: against SciPy, by hand, and by simulation where they promise a coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from landscape.errors import StudyError
from landscape.statistics.change import change_point
from landscape.statistics.correlation import KINDS, correlate
from landscape.statistics.laws import fit
from landscape.statistics.paired import paired
from landscape.statistics.resampling import resample, runs_of


def drift(n: int, seed: int) -> np.ndarray:
    """A random walk: what any two quantities of one run look like."""
    return np.cumsum(np.random.default_rng(seed).normal(size=n))


class TestResampling:
    def test_blocks_of_neighbours_from_all_runs(self):
        names = ["a"] * 7 + ["b"] * 4
        places = resample(names, 4000, block=3)
        assert places.shape == (4000, 11)
        for begin in (0, 3, 6):
            one, two, three = places[:, begin], places[:, begin + 1], places[:, begin + 2]
            of_a = one < 7
            assert ((two - one)[of_a] % 7 == 1).all() and ((three - two)[of_a] % 7 == 1).all()
            assert ((two - one)[~of_a] % 4 == 1).all() and (two[of_a] < 7).all() and (two[~of_a] >= 7).all()
        counts = np.bincount(places.ravel(), minlength=11) / 4000
        assert np.abs(counts - 1).max() < 0.08  # every row is as likely as the others
        from_a = (places < 7).sum(axis=1)
        assert from_a.min() <= 3 and from_a.max() == 11  # a run may be left out, or be all there is

    def test_short_runs_are_drawn_whole(self):
        names = [run for run in range(20) for _ in range(3)]
        places = resample(names, 50).reshape(50, 20, 3)
        assert (places // 3 == places[:, :, :1] // 3).all()
        assert (np.sort(places % 3, axis=2) == np.arange(3)).all()

    def test_few_rows_of_one_run_still_differ(self):
        """A single block would always give the same rows, and an interval without width."""
        assert len({tuple(sorted(each)) for each in resample([0] * 4, 100).tolist()}) > 3
        x = np.array([1.0, 2.0, 4.0, 3.0, 5.0])
        found = correlate(x, x + np.array([0.3, -0.2, 0.1, 0.2, -0.4]), kinds=["pearson"])["pearson"]
        assert found.high - found.low > 0.1

    def test_blocks_of_different_lengths_fill_a_draw(self):
        names = ["a"] * 30 + ["b"] * 2
        places = resample(names, 300)
        assert places.shape == (300, 32) and set(np.unique(places)) == set(range(32))

    def test_rows_of_a_run_need_not_lie_together(self):
        places = resample(["a", "b", "a", "b", "a"], 50, block=3)
        assert all(set(each[:3]) <= {0, 2, 4} or set(each[:2]) <= {1, 3} for each in places.tolist())
        assert [own.tolist() for own in runs_of(["a", "b", "a", "b", "a"])] == [[0, 2, 4], [1, 3]]


class TestCorrelation:
    @pytest.mark.parametrize("ties", [False, True])
    def test_values_are_those_of_scipy(self, ties: bool):
        random = np.random.default_rng(3)
        x = random.normal(size=40)
        y = x + random.normal(size=40)
        if ties:
            x, y = np.round(x), np.round(y)
        found = correlate(x, y, draws=50)
        assert found["pearson"].value == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
        assert found["spearman"].value == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
        assert found["kendall"].value == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
        assert all(each.low < each.value < each.high and each.rows == 40 for each in found.values())

    @pytest.mark.parametrize("kind", KINDS)
    def test_intervals_cover_as_often_as_they_say(self, kind: str):
        """400 samples of 30 pairs with r = 0.6: the population's ρ and τ have closed forms for a normal pair."""
        r = 0.6
        truth = {"pearson": r, "spearman": 6 / math.pi * math.asin(r / 2), "kendall": 2 / math.pi * math.asin(r)}[kind]
        random, inside = np.random.default_rng(1), 0
        for number in range(400):
            x = random.normal(size=30)
            y = r * x + math.sqrt(1 - r**2) * random.normal(size=30)
            found = correlate(x, y, kinds=[kind], draws=300, seed=number)[kind]
            inside += found.low <= truth <= found.high
        assert 0.90 <= inside / 400 <= 0.98

    def test_few_rows_that_agree_have_an_interval_of_use(self):
        """Resamplings of twelve rows whose order is perfect have r = 1: they must not make the interval infinite."""
        x = np.arange(12.0)
        y = x.copy()
        y[[2, 3]], y[[8, 9]] = y[[3, 2]], y[[9, 8]]
        found = correlate(x, y, range(12), kinds=("spearman",))["spearman"]
        assert 0.97 < found.value < 1 and found.low > 0.85

    def test_two_walks_that_have_nothing_to_do_with_each_other(self):
        """Raw coefficients call them related most of the time, differences as rarely as they should."""
        related = {False: 0, True: 0}
        for number in range(200):
            x, y = drift(60, number), drift(60, 1000 + number)
            for differenced in related:
                found = correlate(x, y, kinds=["pearson"], differenced=differenced, draws=300)["pearson"]
                related[differenced] += not found.low <= 0 <= found.high
        assert related[False] > 80
        assert related[True] < 30

    def test_neighbours_that_resemble_each_other_widen_the_interval(self):
        """Pairs with autocorrelation 0.7 and no relation: single rows would deny it too often."""
        outside = {"blocks": 0, "rows": 0}
        for number in range(200):
            noise = np.random.default_rng(number).normal(size=(2, 260))
            for step in range(1, 260):
                noise[:, step] += 0.7 * noise[:, step - 1]
            x, y = noise[:, 60:]
            found = correlate(x, y, kinds=["pearson"], draws=200)["pearson"]
            outside["blocks"] += not found.low <= 0 <= found.high
            outside["rows"] += stats.pearsonr(x, y).pvalue < 0.05
        assert outside["rows"] > 30
        assert outside["blocks"] < outside["rows"] * 0.75

    def test_runs_that_differ_widen_the_interval(self):
        """25 runs of three checkpoints whose levels differ from run to run, and no relation between the levels."""
        outside = {"blocks": 0, "rows": 0}
        for number in range(200):
            random = np.random.default_rng(number)
            levels, noise = random.normal(size=(2, 25)), 0.3 * random.normal(size=(2, 75))
            x, y = np.repeat(levels, 3, axis=1) + noise
            found = correlate(x, y, np.repeat(np.arange(25), 3), kinds=["pearson"], draws=200)["pearson"]
            outside["blocks"] += not found.low <= 0 <= found.high
            outside["rows"] += stats.pearsonr(x, y).pvalue < 0.05
        assert outside["rows"] > 30
        assert outside["blocks"] < 20

    def test_partial_is_the_textbook_formula(self):
        random = np.random.default_rng(5)
        z = random.normal(size=80)
        x, y = z + random.normal(size=80), z + random.normal(size=80)
        found = correlate(x, y, given={"z": z}, draws=100)
        for kind, of in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
            xy, xz, yz = (of(a, b).statistic for a, b in ((x, y), (x, z), (y, z)))
            assert found[kind].value == pytest.approx((xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2)), abs=1e-9)
        assert abs(found["pearson"].value) < 0.25 < stats.pearsonr(x, y).statistic

    def test_what_a_common_drift_explains_is_taken_out(self):
        step = np.arange(50.0)
        random = np.random.default_rng(7)
        x, y = step + random.normal(size=50), 2 * step + random.normal(size=50)
        assert correlate(x, y)["pearson"].value > 0.99
        left = correlate(x, y, given={"step": step, "same": 3 * step})["pearson"]  # a column twice changes nothing
        assert left.low < 0 < left.high
        assert math.isnan(correlate(step, y, given={"step": 2 * step + 1})["spearman"].value)  # nothing is left of x

    def test_lag_compares_with_later_rows_of_the_same_run(self):
        x = np.concatenate([drift(30, 1), drift(30, 2)])
        runs = ["a"] * 30 + ["b"] * 30
        y = np.concatenate([np.roll(x[:30], 3), np.roll(x[30:], 3)])  # y follows x by three rows
        for lag, kinds in ((3, KINDS), (-3, ())):
            for kind in kinds:
                assert correlate(x, y, runs, lag=lag)[kind].value == pytest.approx(1.0)
        assert correlate(y, x, runs, lag=-3)["pearson"].value == pytest.approx(1.0)
        assert correlate(x, y, runs, lag=3)["pearson"].rows == 54
        assert correlate(x, y, runs, lag=3, differenced=True)["pearson"].rows == 52

    def test_differences_never_cross_runs(self):
        x = np.array([0.0, 1.0, 3.0, 100.0, 102.0, 103.0])
        y = np.array([0.0, 2.0, 6.0, -50.0, -46.0, -44.0])
        found = correlate(x, y, ["a"] * 3 + ["b"] * 3, differenced=True)["pearson"]
        assert found.rows == 4 and found.value == pytest.approx(1.0)

    def test_what_cannot_be_is_one_line(self):
        with pytest.raises(StudyError, match="2 rows that can be compared; expected at least 4"):
            correlate([1, 2, np.nan], [1, 2, 3])
        with pytest.raises(StudyError, match="y is the same in all 5 rows"):
            correlate([1, 2, 3, 4, 5], [7] * 5)


class TestChangePoint:
    def test_a_break_is_found_with_its_slopes(self):
        t = np.arange(40.0)
        y = 1 + 0.1 * t + 0.9 * np.maximum(t - 25, 0)
        found = change_point(t, y + 0.01 * np.random.default_rng(0).normal(size=40))
        assert found.low <= 25 <= found.high and abs(found.at - 25) <= 0.5
        assert found.before == pytest.approx(0.1, abs=0.01) and found.after == pytest.approx(1.0, abs=0.01)
        assert found.p_value < 0.01

    def test_a_straight_line_has_none(self):
        rare = 0
        for seed in range(100):
            t = np.arange(30.0)
            rare += change_point(t, t + np.random.default_rng(seed).normal(size=30), draws=200).p_value < 0.05
        assert rare <= 12

    def test_the_interval_covers_the_break(self):
        inside = 0
        for seed in range(100):
            t = np.arange(40.0)
            y = 0.5 * np.maximum(t - 24, 0) + np.random.default_rng(seed).normal(size=40)
            found = change_point(t, y, draws=200)
            inside += found.low <= 24 <= found.high
        assert inside >= 85

    def test_what_cannot_be_is_one_line(self):
        with pytest.raises(StudyError, match="7 rows; expected at least 8"):
            change_point(range(7), range(7))
        with pytest.raises(StudyError, match="steps that rise"):
            change_point([1] * 9, range(9))


class TestPaired:
    def test_pairs_are_those_of_scipy(self):
        random = np.random.default_rng(2)
        a, b = random.normal(size=(2, 24))
        found, expected = paired(a, b), stats.ttest_rel(a, b)
        assert (found.t, found.p_value) == pytest.approx((expected.statistic, expected.pvalue))
        interval = expected.confidence_interval()
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high))

    def test_a_seed_is_one_draw(self):
        """Three seeds of eight checkpoints that are alike within a seed: pooled, nothing looks like a finding."""
        wrong = {"pooled": 0, "by seed": 0}
        for number in range(300):
            random = np.random.default_rng(number)
            seeds = np.repeat([1, 2, 3], 8)
            difference = np.repeat(random.normal(size=3), 8) + 0.2 * random.normal(size=24)
            wrong["pooled"] += paired(difference, np.zeros(24)).p_value < 0.05
            wrong["by seed"] += paired(difference, np.zeros(24), seeds).p_value < 0.05
        assert wrong["pooled"] > 120
        assert wrong["by seed"] < 30

    def test_what_cannot_be_is_one_line(self):
        with pytest.raises(StudyError, match="1 seeds; expected at least two"):
            paired([1, 2], [0, 0], ["a", "a"])
        with pytest.raises(StudyError, match="3 and 2 rows"):
            paired([1, 2, 3], [0, 0])


class TestLaws:
    D = np.tile(np.geomspace(1e8, 1e11, 12), 6)
    N = np.repeat([7e7, 1.6e8, 4e8], 24)
    P = np.tile(np.repeat([3.0, 4.0], 12), 3)
    RUNS = np.repeat(range(6), 12)

    def columns(self) -> dict[str, np.ndarray]:
        return {"tokens": self.D, "parameters": self.N, "bits": self.P}

    def test_the_law_of_kumar_is_found_again(self):
        delta = 0.0598 * self.D**0.5068 / self.N**0.3439 * np.exp(-self.P / 0.5907)
        noise = np.exp(0.05 * np.random.default_rng(0).normal(size=len(delta)))
        found = fit("kumar", delta * noise, self.columns(), self.RUNS)
        for name, truth in (("gamma_D", 0.5068), ("gamma_N", 0.3439), ("1/gamma_P", 1 / 0.5907)):
            value, low, high = found.exponents[name]
            assert low <= truth <= high and value == pytest.approx(truth, abs=0.05), name
        assert found.constant == pytest.approx(0.0598, rel=0.5)
        assert found.r_squared > 0.99 and found.rank > 0.99
        assert found.error == pytest.approx(0.05, rel=0.3)

    def test_the_law_of_ouyang_is_found_again(self):
        delta = 0.017 * self.D**0.5251 / (self.N**0.2261 * self.P**5.4967)
        found = fit("ouyang", delta, self.columns(), self.RUNS)
        assert found.constant == pytest.approx(0.017)
        assert [each[0] for each in found.exponents.values()] == pytest.approx([0.5251, 0.2261, 5.4967])

    def test_what_does_not_vary_is_left_out(self):
        columns = self.columns() | {"parameters": np.full(72, 1e6)}
        found = fit("kumar", self.D**0.5 * np.exp(-self.P), columns, self.RUNS)
        assert found.left_out == ("parameters",) and set(found.exponents) == {"gamma_D", "1/gamma_P"}

    def test_rows_without_a_logarithm_are_counted(self):
        delta = self.D**0.5 * np.exp(-self.P)
        delta[:5] = [-1, 0, np.nan, np.inf, 1]
        found = fit("kumar", delta, self.columns(), self.RUNS)
        assert (found.rows, found.dropped) == (68, 4)

    def test_what_cannot_be_is_one_line(self):
        with pytest.raises(StudyError, match="law kumer: expected one of kumar, ouyang, curvature"):
            fit("kumer", [1], {})
        with pytest.raises(StudyError, match="needs the column bits"):
            fit("ouyang", [1], {"tokens": [1], "parameters": [1]})
        with pytest.raises(StudyError, match="0 rows with a positive error"):
            fit("curvature", [-1, -2], {"predicted": [1, 2]})
