"""What the script of a page needs to know of a slice."""

from __future__ import annotations

from typing import Any

import numpy as np

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.curves import curve_losses, is_smooth, loss_limits, profile_losses
from landscape.viewer.described.describe import Description
from landscape.viewer.described.evaluations import node_places
from landscape.viewer.described.labels import label_html, text_html
from landscape.viewer.described.points import PointRow
from landscape.viewer.described.words import bound, digits_within
from landscape.viewer.pages.plain import plain_surface
from landscape.viewer.pages.units import units

_EVALUATED, _RECONSTRUCTED = 1, 2  # as picture.js has them; 0 where a cell has no loss yet


def slice_data(stored: StoredSlice, described: Description) -> dict[str, Any]:
    """Losses, points and everything else that is drawn of a slice; label places are those of the plot, not in here."""
    trust, colours = described.trust, described.colours
    cells = np.where(stored.done, np.where(stored.evaluated, _EVALUATED, _RECONSTRUCTED), 0).astype("u1")
    alpha, beta = described.path
    return {
        "title": described.title,
        "isLine": described.is_line,
        "alpha": stored.alpha,
        "beta": stored.beta,
        "losses": stored.loss.astype(np.float64).ravel(),
        "cells": cells.ravel(),
        "surface": plain_surface(stored.surface),
        "points": [_point(point) for point in described.points],
        "path": {"alpha": alpha, "beta": beta} if len(alpha) else None,
        "line": _line(described),
        "nodes": node_places(stored).tolist(),
        "checks": stored.checks.tolist(),
        "error": trust.error,
        "errorWords": bound(trust.error),
        "errorDigits": digits_within(trust.error),
        "decimals": described.decimals,
        "colours": {"low": colours.low, "high": colours.high} if colours else None,
        "axes": [text_html(title, described.labels) for title in (described.alpha_title, described.beta_title)],
        "toOneScale": described.to_one_scale,
        "units": [
            {"key": unit.key, "choice": unit.choice, "title": unit.title, "length": unit.length}
            for unit in units(stored, described.points)
        ],
    }


def plane_data(stored: StoredSlice, described: Description) -> dict[str, Any]:
    """What a plane has besides: the profile between its first and last named point."""
    t, loss = profile_losses(stored)
    return slice_data(stored, described) | {
        "profile": {
            "t": np.asarray(t, np.float64),
            "loss": np.asarray(loss, np.float64),
            "evaluated": stored.surface is None,
        }
    }


def line_data(stored: StoredSlice, described: Description) -> dict[str, Any]:
    """What a line has besides: its curve, finer than the grid where that is known."""
    alpha, loss = curve_losses(stored)
    return slice_data(stored, described) | {
        "curve": {"alpha": np.asarray(alpha, np.float64), "loss": np.asarray(loss, np.float64)},
        "smooth": is_smooth(stored),
        "limits": loss_limits(stored, described),
    }


def _line(described: Description) -> list[float] | None:
    if described.profile_line is None:
        return None
    first, last = described.origin, described.last
    return [first.alpha, first.beta, last.alpha, last.beta]


def _point(point: PointRow) -> dict[str, Any]:
    return {
        "name": point.name,
        "label": label_html(point.label),
        "role": point.role,
        "sign": point.sign,
        "small": point.small,
        "inside": point.inside,
        "alpha": point.alpha,
        "beta": point.beta,
        "loss": point.loss,
        "change": point.change,
        "relative": point.relative,
        "distance": point.distance,
        "residual": point.residual,
        "below": point.below,
        "shown": point.shown,
    }
