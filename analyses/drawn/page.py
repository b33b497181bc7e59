"""A figure as a page that opens from disk, offline: plotly's script lies beside it, one for all pages of a folder."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from string import Template

from plotly.io import to_html
from plotly.offline import get_plotlyjs

from analyses.drawn.figure import Figure
from analyses.drawn.interactive import draw
from analyses.drawn.words import html_text
from landscape.storage.files import write_whole
from landscape.viewer.pages.style import FONT

SCRIPT = "plotly.min.js"
_PAGE = Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>$title</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{font-family:$font;color:#1f2933;max-width:1150px;margin:2em auto;padding:0 1em;line-height:1.45}
h1{font-size:1.35em}p,li{font-size:.95em}li{margin:.35em 0;overflow-wrap:anywhere}.plot{overflow-x:auto}</style>
<script src="$script"></script></head>
<body><h1>$title</h1><p>$caption</p><div class="plot">$plot</div><ul>$lines</ul></body></html>
""")


def write(figure: Figure, title: str, lines: Sequence[str], folder: Path) -> Path:
    """NAME.html in `folder`, with verdicts below the plot; what comes from tables is shown, never obeyed."""
    script = folder / SCRIPT
    if not script.exists():
        write_whole(script, get_plotlyjs().encode())
    # plotly writes "<", ">" and "/" of its JSON as \u003c and so on: nothing in the data can end the script.
    plot = to_html(draw(figure), include_plotlyjs=False, full_html=False, div_id="plot")
    page = _PAGE.substitute(
        title=html.escape(title),
        caption=html_text(figure.caption),
        font=FONT,
        script=SCRIPT,
        plot=plot,
        lines="".join(f"<li>{html_text(line)}</li>" for line in lines),
    )
    path = folder / f"{figure.name}.html"
    write_whole(path, page.encode())
    return path
