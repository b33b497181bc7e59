"""Sizes of pages and how long headless Chromium takes to show them, beside a page with the script of plotly alone.

    make bench-explorer
    python benchmarks/explorer.py --cells 201 --repeats 9

A page is *flat* when all but the surface is drawn and answers, *all* when the surface is, too: WebGL in software, where
there is no GPU. *turn* is the longest wait of the page for itself while the surface is turned with the mouse. The floor
is the page with the script alone: what reading, compiling and running plotly takes. Pages are visited in turn, the
smallest time of each counts; seconds from the start of the visit, of the file on disk.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from plotly.offline import get_plotlyjs

from landscape.slices.stored import StoredPoint, StoredSlice
from landscape.viewer.pages.compare import compare_page
from landscape.viewer.pages.frame import SCRIPT, script
from landscape.viewer.pages.slice import slice_page

FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-background-networking"]
WAITS = """() => new Promise(done => { let last = performance.now(), worst = 0; const step = () => { const now =
performance.now(); worst = Math.max(worst, now - last); last = now; requestAnimationFrame(step); };
requestAnimationFrame(step); window.worstWait = () => worst; done(); })"""


def basin(cells: int) -> StoredSlice:
    """A slice with three quantizers, every cell evaluated."""
    line = np.linspace(-6.0, 18.0, cells)
    alpha, beta = line / 2, line

    def loss(a: Any, b: Any) -> Any:
        return 2.4 + 0.011 * a**2 + 0.0016 * b**2 + 0.0004 * a * b + 0.01 * np.cos(a)

    places = {"theta": (0.0, 0.0), "gptq": (0.1, 9.0), "rtn": (1.5, 12.0), "awq": (-1.0, 10.0)}
    points = tuple(
        StoredPoint(
            name,
            name,
            "quantized" if name != "theta" else "origin",
            name,
            a,
            b,
            0.0,
            float(np.hypot(a, b)),
            (0, 0),
            float(loss(a, b)),
        )
        for name, (a, b) in places.items()
    )
    done = np.ones((cells, cells), dtype=bool)
    t = np.linspace(-0.25, 1.25, 31)
    last = points[-1]
    attributes = {"title": "three quantizers", "status": "complete", "weight_norm": 60.0, "plane": "quantizers"}
    return StoredSlice(
        alpha,
        beta,
        loss(alpha[:, None], beta),
        done,
        done,
        points,
        (t, loss(t * last.alpha, t * last.beta)),
        attributes,
        {},
        {"node": np.zeros((0, 3)), "check": np.zeros((0, 3))},
        None,
        None,
        np.zeros((0, 4)),
        {},
    )


def visit(browser: Any, path: Path, turn: bool) -> dict[str, float]:
    """Milliseconds until each stage."""
    page = browser.new_page(viewport={"width": 1300, "height": 1000})
    page.goto(path.as_uri())
    for _ in range(300):
        if page.evaluate("document.documentElement.dataset.drawn ?? 'all'") == "all":
            break
        page.wait_for_timeout(50)
    marks = page.evaluate("performance.getEntriesByType('mark').map(mark => [mark.name, mark.startTime])")
    found = dict(marks) or {"script": page.evaluate("window.ran")}
    if turn and page.locator("#surface").count():
        box = page.locator("#surface").bounding_box()
        page.evaluate(WAITS)
        page.mouse.move(box["x"] + 200, box["y"] + 200)
        page.mouse.down()
        for k in range(10):
            page.mouse.move(box["x"] + 200 + 15 * k, box["y"] + 200 + 5 * k)
            page.wait_for_timeout(30)
        page.mouse.up()
        found["turn"] = page.evaluate("window.worstWait()")
    page.close()
    return found


def main() -> None:
    """Write the pages, visit them, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=101, help="cells along a side")
    parser.add_argument("--repeats", type=int, default=5, help="visits of every page")
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    stored = basin(args.cells)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        place = Path(folder)
        (place / SCRIPT).write_bytes(script())
        (place / "bare.html").write_text(f"<script>{get_plotlyjs()}</script><script>ran = performance.now()</script>")
        (place / "alone.html").write_text(slice_page(stored))
        corner = np.add.outer(stored.alpha, stored.beta) > 12
        (place / "torn.html").write_text(slice_page(replace(stored, loss=np.where(corner, np.nan, stored.loss))))
        (place / "beside.html").write_text(slice_page(stored, beside=True))
        (place / "four.html").write_text(
            compare_page("four", [(f"slice {k}", stored, "") for k in range(4)], beside=True)
        )
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        names = ("bare", "alone", "torn", "beside", "four")
        times: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(args.repeats):
            for name in names:
                times[name].append(visit(browser, place / f"{name}.html", turn=True))
        print(f"| page, {args.cells}×{args.cells} cells | MB | script, s | flat, s | all, s | turn, s |")
        print("|---|---|---|---|---|---|")
        for name in names:
            size = (place / f"{name}.html").stat().st_size / 1e6
            least = {key: min(each[key] for each in times[name]) / 1000 for key in times[name][0]}
            cells = " | ".join(f"{least[key]:.2f}" if key in least else "" for key in ("script", "flat", "all", "turn"))
            print(f"| {name} | {size:.2f} | {cells} |")


if __name__ == "__main__":
    main()
