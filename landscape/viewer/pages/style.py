"""What plots drawn by plotly share with the pages: fonts, colours, plain axes."""

from __future__ import annotations

from typing import Any

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, GREY, LIGHT = "#1f2933", "#7b8794", "#e8ebef"


def layout() -> dict[str, Any]:
    """Fonts, colours and hover boxes of a plot."""
    return {
        "template": "none",
        "font": {"family": FONT, "size": 12.5, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hoverlabel": {"bgcolor": "white", "bordercolor": GREY, "font": {"color": INK, "size": 13}, "align": "left"},
        "hovermode": "closest",
        "showlegend": False,
    }


def axis(title: str) -> dict[str, Any]:
    """A plain axis with outside ticks."""
    return {
        "title": {"text": title, "font": {"size": 13}, "standoff": 8},
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": GREY,
        "tickangle": 0,
        "showline": True,
        "linecolor": GREY,
        "gridcolor": LIGHT,
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
    }
