"""Figures and verdicts of the questions: what is drawn, on paper and as pages, and what is said."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from analyses import figures, in_the_wild, peak_rate
from analyses.drawn.figure import Figure, Panel, Series
from analyses.drawn.interactive import draw as draw_page
from analyses.drawn.page import SCRIPT
from analyses.drawn.page import write as write_page
from analyses.drawn.printed import draw as draw_paper
from analyses.drawn.printed import write as write_paper
from analyses.question import said
from analyses.read.tables import load
from made_studies import (
    averages,
    budgets,
    peaks,
    public,
    study,
)

HOSTILE = "<script>alert(1)</script>"


def test_all_is_drawn_that_can_be_and_the_rest_listed(tmp_path, monkeypatch, capsys):
    study(tmp_path, budgets() + public(f"{HOSTILE}/run", 0.01))
    study(tmp_path, averages(3.0), "averages")
    out = tmp_path / "out"
    monkeypatch.setattr("sys.argv", ["figures", str(tmp_path / "made"), str(tmp_path / "averages"), "--out", str(out)])
    figures.main()
    told = capsys.readouterr().out
    for name in ("budgets", "averaging", "in_the_wild", "scaling_laws"):
        kinds = {path.suffix for path in out.glob(f"{name}.*")}
        assert kinds == {".pdf", ".png", ".html"}, name
        assert f"missing  {name}" not in told
    assert "holds: error rises in the cooldown, gptq-w4-g64" in told
    for name in ("forks", "basin", "peak_rate", "weight_decay", "prediction"):
        assert f"missing  {name}: " in told
        assert not list(out.glob(f"{name}.*"))
    assert "EXPERIMENTS=F" in told
    assert "missing  budgets" not in told


def test_a_run_cannot_write_into_a_page(tmp_path):
    answer = in_the_wild.answer([study(tmp_path, public(f"{HOSTILE}/run", 0.01))])
    path = write_page(answer.figures[0], "?", list(answer.lines()), tmp_path)
    page = path.read_text()
    assert HOSTILE not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 1  # in the verdicts
    for trace in draw_page(answer.figures[0]).data:  # plotly obeys markup of its own
        assert "<" not in trace.name
        assert "&lt;script&gt;" in trace.name
        assert all("<" not in text for text in trace.text)
    assert set(re.findall(r'src="([^"]*)"', page)) == {SCRIPT}  # nothing but what lies beside it
    assert (tmp_path / SCRIPT).stat().st_size > 1e6


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    panel = Panel((Series([1, 2], [3, 4], "L(Θ̂), λ_max $x", low=[2, 3], high=[4, 5]),), "x", "y", y_scale="log")
    both = [write_paper(Figure("one", "", ((panel,),)), tmp_path / name) for name in ("a", "b")]
    for one, other in zip(*both, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_an_interval_is_drawn_where_it_lies():
    line = Series([1, 2], [3, 4], "line", low=[2, 3], high=[5, 6])
    points = Series([1, 2], [3, 4], "points", low=[2, 3], high=[5, 6], dash="")
    paper = draw_paper(Figure("one", "", ((Panel((line, points)),),)))
    (axis,) = paper.axes
    band, bars = axis.collections
    assert band.get_datalim(axis.transData).intervaly.tolist() == [2, 6]
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[2, 5], [3, 6]]
    page = draw_page(Figure("one", "", ((Panel((line, points, Series((), (), "nothing"))),),)))
    low, high = page.layout.yaxis.range
    assert 1.5 < low < 2
    assert 6 < high < 6.5
    assert [trace.name for trace in page.data] == ["line", "points"]
    for trace in page.data:
        assert list(trace.error_y.array) == [2, 2]
        assert list(trace.error_y.arrayminus) == [1, 1]


def test_a_verdict_in_words(tmp_path):
    answer = peak_rate.answer([study(tmp_path, peaks(0.05, 0.03))])
    words = said(answer.verdicts[0])
    assert words.startswith("holds: ordered by peak rate, gptq-w4-g64 (")
    assert "0.003 less 0.001: -2.00 % [-2.00, -2.00] and -2.00 %" in words


def test_a_table_is_read_once_whatever_it_is_called(tmp_path):
    table = study(tmp_path, budgets())
    assert len(load([table.folder, table.path, tmp_path / "made" / ".." / "made"])) == 1


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_the_make_target_passes_its_names_on():
    root = Path(__file__).parents[1]
    command = ["make", "-n", "figures", "TABLES=a b", "OUT=somewhere"]
    bare = {"PATH": "/usr/bin:/bin:/usr/local/bin"}
    made = subprocess.run(command, cwd=root, env=bare, capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    assert "-m analyses.figures a b --out 'somewhere'" in " ".join(made.stdout.split())
