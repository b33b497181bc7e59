"""What every page is: one document with its data in it, and the script that draws it, within or in a file beside it.

A page asks nothing of any network. It runs the two scripts whose hashes it names, or those of its own folder; whatever
a result says of itself is data.
"""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from importlib import resources
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from landscape.viewer.pages.plain import to_json
from landscape.viewer.pages.style import FONT

SCRIPT = "landscape.js"  # beside the pages of a folder, one for all of them
_PARTS = (
    *("words", "plain", "state", "theme", "picture", "units", "scale", "plots", "said", "marks"),
    *("contour", "surface", "profile", "curve", "cursor", "slice", "compare"),
    *(
        "course",
        "panels",
        "correlation",
        "scatter",
        "ridge",
        "layers",
        "checkpoint",
        "trajectory",
        "contents",
        "live",
        "start",
    ),
)


def whole(title: str, body: str, data: dict[str, Any], *, beside: bool = False, live: bool = False) -> str:
    """A page as text.

    Args:
        title: plain text.
        body: HTML of everything that is seen.
        data: for the script; `page` in it says which page this is.
        beside: the script is in a file `SCRIPT` in the same folder, not within.
        live: the page is served, and looks now and then whether there is a newer one.
    """
    page = Template(_part("page.html"))
    scripts = [f'<script src="{SCRIPT}"></script>'] if beside else [f"<script>{each}</script>" for each in _scripts()]
    return page.substitute(
        policy=_policy(beside, live),
        title=html.escape(title),
        kind=data["page"],
        style=_part("page.css").replace("FONT", FONT) + _part(f"{data['page']}.css"),
        body=body,
        data=to_json(data | {"live": live}),
        scripts="\n".join(scripts),
    )


def script() -> bytes:
    """What `SCRIPT` holds."""
    return "\n".join(_scripts()).encode()


@cache
def _scripts() -> tuple[str, str]:
    """Plotly's and ours."""
    parts = "\n".join(_part(f"script/{name}.js") for name in _PARTS)
    return get_plotlyjs(), f'(() => {{\n"use strict";\n{parts}}})();'


@cache
def _part(name: str) -> str:
    return resources.files("landscape.viewer.pages").joinpath(name).read_text(encoding="utf-8")


@cache
def _policy(beside: bool, live: bool) -> str:
    hashes = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in _scripts())
    allowed = "'self' file:" if beside else " ".join(f"'sha256-{each}'" for each in hashes)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    return policy + ("; connect-src 'self'" if live else "")
