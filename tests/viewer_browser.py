"""A page in headless Chromium: what it shows, what the pointer finds on it, what it complains about."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from landscape.slices.stored import StoredSlice

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-gpu-compositing",  # in software it only costs: a quarter of what a page takes
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Opened:
    """A page as the browser sees it, and all it complained about or asked for."""

    page: Any
    stored: StoredSlice
    complaints: list[str]
    requests: list[str]
    url: str

    def hover(self, x: float, y: float, plot: str = "contour") -> str:
        """The hover text of a flat plot where (x, y) is drawn."""
        self.page.locator(f"#{plot}").scroll_into_view_if_needed()
        x, y = self.page.evaluate(
            """([plot, x, y]) => { plot = document.getElementById(plot); const box = plot.getBoundingClientRect();
            const {xaxis, yaxis} = plot._fullLayout;
            return [box.x + xaxis._offset + xaxis.l2p(x), box.y + yaxis._offset + yaxis.l2p(y)]; }""",
            [plot, x, y],
        )
        self.page.mouse.move(0, 0)
        self.page.wait_for_selector(f"#{plot} .hovertext", state="detached")
        self.page.mouse.move(x, y)
        return shown(self.page.locator(f"#{plot} .hovertext"))[0]

    def cell(self, i: int, j: int) -> tuple[float, float]:
        """A place in the cell (i, j), off its centre and its edges, within the rectangle."""
        inward = [
            0.2 * (line[1] - line[0]) * (-1 if k == len(line) - 1 else 1)
            for line, k in ((self.stored.alpha, i), (self.stored.beta, j))
        ]
        return self.stored.alpha[i] + inward[0], self.stored.beta[j] + inward[1]

    def on_surface(self, right: float, down: float) -> str:
        """The hover text of the surface at shares of its box."""
        self.page.evaluate("scrollTo(0, 0)")
        box = self.page.locator("#surface").bounding_box()
        self.page.mouse.move(box["x"] + right * box["width"], box["y"] + down * box["height"], steps=3)
        return shown(self.page.locator("#surface .hovertext"))[0].replace("−", "-")


def shown(locator: Any) -> list[str]:
    """The texts, without the spaces of no width that plotly puts around subscripts."""
    locator.first.wait_for()
    return [text.replace("\u200b", "") for text in locator.all_text_contents()]


def becomes_true(page: Any, expression: str) -> bool:
    """Whether the expression is true within a minute; the page's own policy forbids playwright's way to wait."""
    for _ in range(600):
        if page.evaluate(expression):
            return True
        page.wait_for_timeout(100)
    return False


@contextmanager
def launched() -> Iterator[Any]:
    """Headless Chromium; without it a test is skipped, or fails where CI runs."""
    missing = [] if CHROMIUM else ["chromium (Debian: apt-get install chromium)"]
    missing += [] if importlib.util.find_spec("playwright") else ["playwright (pip install playwright)"]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"CI must test the page in a browser, and there is no {' and no '.join(missing)}")
    if missing:
        pytest.skip(f"THE PAGE IS NOT TESTED IN A BROWSER: no {' and no '.join(missing)}")
    from playwright import sync_api

    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()
