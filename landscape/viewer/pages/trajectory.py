"""The page of a study: training runs checkpoint by checkpoint, as panels, numbers, slices, spectra and layers."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from landscape.viewer.described.course import CHECKPOINT, Course, real
from landscape.viewer.described.course_columns import called, layer_measures, measures, scattered
from landscape.viewer.described.course_words import amount, caption, facts, notices, title
from landscape.viewer.described.words import number
from landscape.viewer.pages import controls
from landscape.viewer.pages.frame import whole
from landscape.viewer.pages.parts import fact, figure
from landscape.viewer.pages.parts import notices as notice_list
from landscape.viewer.pages.trajectory_data import course_data

_ABOUT_PANELS = (
    "Colour and sign are the quantizer, the dashes the run; black lines are the same under every quantizer. Shaded: "
    "95 % intervals. The loss has none: its error over the text moves all checkpoints together, and says nothing of "
    'the differences between them. Click a point to choose its checkpoint. <span data-said="panels"></span>'
)
_ABOUT_CORRELATION = (
    "r (Pearson) says how well a straight line fits, ρ (Spearman) how well the order agrees: from −1 over 0 (no "
    "relation) to 1. The brackets hold a 95 % interval: of such intervals about 19 in 20 hold the coefficient that "
    "endlessly many runs would have. It comes from drawing blocks of neighbouring checkpoints again, since neighbours "
    "are alike. Along a run everything drifts, so that quantities which have nothing to do with each other "
    "correlate: a raw coefficient proves little. “Changes” compares what changes from one checkpoint to the next, "
    "which a steady drift cannot feign."
)
_ABOUT_RIDGE = (
    "How the eigenvalues of the Hessian, the curvatures of the loss in its own directions, are spread: one curve a "
    "checkpoint of the chosen run, upwards in time. A curve’s height over its base line is the logarithm of the number "
    "of eigenvalues per unit of λ; triangles are the outermost eigenvalues, measured by themselves. The curve is an "
    "estimate, in which a few bumps stand for whatever lies far out. A long tail to the right means a few very steep "
    "directions; what lies left of 0 are directions in which the loss curves down."
)
_ABOUT_LAYERS = (
    "Where in the model quantization hurts: a row a layer, a column a checkpoint of the chosen run. "
    '<span data-said="layers"></span>'
)


def trajectory_page(course: Course, *, beside: bool = False, live: bool = False, up: str = "") -> str:
    """The page as text.

    Args:
        course: the study.
        beside: whether the script is in a file beside the page.
        live: whether the page looks for a newer one.
        up: HTML of links to the pages that this one belongs to.
    """
    data = course_data(course)
    body = f"""<header>
{up}<h1>{html.escape(title(course))}</h1>
<div class="about">
<p class="caption">{html.escape(" ".join(caption(course))).replace(" %", "&nbsp;%")}</p>
<dl class="facts">{"".join(fact(name, value) for name, value in facts(course))}</dl>
</div>
{notice_list(notices(course), [])}
</header>
{_controls(course)}
<div class="along">
{_panels(course)}
{_checkpoint(course)}
</div>
{_scatter(course)}
{_ridge(course) if course.spectra else ""}
{_layers(course) if data["layers"] else ""}
<footer>{_footer(course)}</footer>"""
    return whole(title(course), body, data, beside=beside, live=live)


def x_axes(course: Course) -> list[tuple[str, str]]:
    """(key, words) of what can lie below the panels, the best first."""
    rows = [row for row in course.rows if row.get("kind") in (None, CHECKPOINT)]
    found = []
    for column, words in (("tokens", "tokens seen"), ("step", "training step")):
        values = {value for row in rows if math.isfinite(value := real(row, column))}
        if len(values) > 1:
            found += [(column, words), (f"log-{column}", f"{words}, logarithmic")]
    by_run = [("run", "run by run")]
    if all(len(course.along(run)) < 2 for run in course.runs):
        return by_run + found
    return (found or [("checkpoint", "checkpoint by checkpoint")]) + by_run


def _controls(course: Course) -> str:
    averages = any(each.kind != CHECKPOINT for each in course.checkpoints)
    return controls.form(
        [
            _several("runs", "Runs", [(name, html.escape(name)) for name in course.runs]),
            _several("quantizers", "Quantizers", [(name, html.escape(name)) for name in course.quantizers]),
            _several("panels", "Panels", [(each.column, each.title) for each in measures(course)]),
            controls.menu("along", "Along", x_axes(course)),
            controls.menu(
                "heights", "Heights", [("auto", "as they need"), ("linear", "linear"), ("log", "logarithmic")]
            ),
            controls.box("averages", "averages of checkpoints, too") if averages else "",
            controls.theme(),
        ]
    )  # fmt: skip


def _several(choice: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    """Boxes to tick that fold away, with a filter where they are many; the words of an option are HTML."""
    if len(options) < 2:
        return ""
    boxes = "".join(controls.box(choice, words, value=name) for name, words in options)
    search = (
        f'<input type="search" placeholder="filter: *s1" data-filter="{choice}" aria-label="Filter {label.lower()}">'
    )
    buttons = "".join(
        f'<button type="button" data-set="{choice}" data-to="{to}">{to}</button>' for to in ("all", "none", "default")
    )
    return (
        f'<details class="several"><summary>{label}: <output data-count="{choice}"></output></summary>'
        f'<div class="options"><p>{search if len(options) > 8 else ""}{buttons}</p>'
        f'<div class="boxes" role="group" aria-label="{label}">{boxes}</div></div></details>'
    )


def _panels(course: Course) -> str:
    about = "".join(f"<div><dt>{each.title}</dt><dd>{html.escape(each.about)}</dd></div>" for each in measures(course))
    below = f'<details><summary>What each panel means</summary><dl class="others">{about}</dl></details>'
    run = course.longest
    seen = f"Panels over {len(course.runs)} runs, one above the other: {_ends(course, run)}."
    return figure("panels", "Along the training", _ABOUT_PANELS, seen, below=below)


def _ends(course: Course, run: str) -> str:
    """The first and last number of every column along a run, for those who cannot see the plot."""
    rows = course.along(run)
    said = []
    for each in measures(course):
        values = [value for row in rows if math.isfinite(value := real(row, each.column))]
        if values:
            said.append(f"{each.column} of {run} from {number(values[0], '.3g')} to {number(values[-1], '.3g')}")
    return "; ".join(said)


def _checkpoint(course: Course) -> str:
    runs = [(name, name) for name in course.runs]
    slider = (
        '<label class="scrub">Checkpoint <input type="range" id="scrub" min="0" step="1" aria-describedby="scrub-at">'
        '<output id="scrub-at"></output></label>'
    )
    sliced = [
        (each, course.identities[each])
        for each in course.checkpoints
        if course.identities.get(each) in course.slices and each.kind == CHECKPOINT
    ]
    buttons = "".join(
        f'<button type="button" data-goto-run="{html.escape(each.run)}" data-goto="{html.escape(each.name)}">'
        f"{html.escape(each.run)} {html.escape(each.name)}</button> "
        for each, _ in sliced
    )
    have = f'<p class="hint goto">Checkpoints with a slice: {buttons}</p>' if buttons else ""
    slices = figure(
        "beside",
        "Its loss slice",
        '<span id="slice-hint"></span>',
        "Contour of the loss around the chosen checkpoint.",
        above=f'<div id="slice-menu">{controls.plain_menu("slice-of", "Slice", [])}</div>',
        below='<p class="readout" id="readout"></p>',
    ) if course.slices else ""  # fmt: skip
    return (
        '<section class="checkpoint"><h2>One checkpoint</h2>'
        f'<form class="controls">{controls.menu("run", "Run", runs)}{slider}</form>'
        f'<div id="numbers" aria-live="polite"></div>{slices}<p class="hint" id="no-slice"></p>{have}</section>'
    )


def _scatter(course: Course) -> str:
    options = [(name, called(course, name)) for name in scattered(course)]
    if len(options) < 2:
        return ""
    scales = [("log", "logarithmic"), ("linear", "linear")]
    menus = "".join(
        [
            controls.menu("x", "Across", options),
            controls.menu("xscale", "on an axis", scales),
            controls.menu("y", "against", options),
            controls.menu("yscale", "on an axis", scales),
            controls.menu("hue", "Colours are", [("quantizer", "quantizers"), ("time", "time")]),
        ]
    )
    hint = "A dot is a checkpoint of the runs shown under one of the quantizers shown; averages are left out."
    plot = figure(
        "scatter", "One column against another", hint, "Scatter of one column of the table against another.",
        above=f'<form class="controls">{menus}</form>',
    )  # fmt: skip
    return (
        f'<div class="two">{plot}<section><h2>How they hang together</h2>'
        f'<div class="scroll"><table id="coefficients" aria-live="polite"></table></div>'
        f'<p class="hint note">{_ABOUT_CORRELATION}</p><p class="hint" id="coefficients-note"></p></section></div>'
    )


def _ridge(course: Course) -> str:
    seen = f"Ridge of {len(course.spectra)} spectra, one a checkpoint."
    return figure("ridge", "The spectrum over time", _ABOUT_RIDGE, seen)


def _layers(course: Course) -> str:
    menus = [
        controls.menu("part", "Colour is", layer_measures(course)),
        controls.menu("under", "under", [(name, name) for name in course.quantizers]),
        controls.menu("partscale", "on a", [("log", "logarithmic scale"), ("linear", "linear scale")]),
    ]
    seen = "Heat map of a quantity of every layer, by checkpoint."
    above = f'<form class="controls">{"".join(menus)}</form>'
    return figure("layers", "Layer by layer", _ABOUT_LAYERS, seen, above=above)


def _footer(course: Course) -> str:
    texts = sorted({str(row["text"]) for row in course.rows if row.get("text")})
    devices = sorted({str(row["device"]) for row in course.rows if row.get("device")})
    said = [f"Losses on {', '.join(texts)}"] if texts else []
    said += [f"measured on {', '.join(devices)}"] if devices else []
    tokens = [value for row in course.rows if math.isfinite(value := real(row, "eval_tokens"))]
    said += [f"{amount(max(tokens))} tokens of evaluation text"] if tokens else []
    return html.escape("; ".join(said))
