// Signs, labels and lines that lie on a plot: named points, the way of the run, places evaluated, cells without a loss.

const SIGNS = ["circle", "square", "diamond", "cross"];
const LABEL = 14; // pixels, the size of a label's letters

function pointStyle(point) {
  return {
    symbol: SIGNS[point.sign],
    color: point.role === "quantized" ? colour("orange") : "white",
    line: {color: "#1f2933", width: point.small ? 1.2 : 1.8},
  };
}

// Of many checkpoints, those farther out of the plane are larger.
function pointSize(picture, point) {
  if (!point.small) return 9 + 2 * point.sign; // one under another still shows
  const farthest = Math.max(...picture.points.map((each) => each.residual));
  return farthest > 0 ? 5 + 9 * (point.residual / farthest) : 7;
}

function pointMarker(picture, unit, point, x, y) {
  return {
    type: "scatter",
    x: [x],
    y: [y],
    mode: "markers",
    marker: {size: pointSize(picture, point), ...pointStyle(point)},
    name: point.label,
    showlegend: false,
    hovertext: [pointWords(picture, unit, point)],
    hoverinfo: "text",
  };
}

// Larger ones lie below: of points in one place, all can be seen.
function belowFirst(points) {
  return [...points].sort((a, b) => b.small - a.small || b.sign - a.sign);
}

function labelOf(point, offset) {
  return {
    text: point.label.replaceAll("%", "&#37;"), // "%{" would start a placeholder
    ax: offset[0],
    ay: -offset[1],
    font: {size: point.small ? LABEL - 2 : LABEL, color: colour("ink")},
    bgcolor: colour("veil"),
    borderpad: 2,
    showarrow: true,
    arrowhead: 0,
    arrowwidth: 1,
    arrowcolor: colour("ink"),
    standoff: 7,
    captureevents: false,
  };
}

function evaluationMarks(picture, unit, x, y) {
  if (!state.places) return [];
  const both = {type: "scatter", mode: "markers", cliponaxis: false, hoverinfo: "text", showlegend: picture.isLine};
  const traces = [];
  const outline = {color: "#1f2933", width: 0.8};
  const said = (kind, place) =>
    `${kind}, ${placeWords(picture, unit, place[0], place[1])}<br><b>loss ${spoken(place[2], significant(7))}</b> ${LOSS_UNIT}`;
  if (picture.nodes.length) {
    traces.push({
      ...both,
      x: picture.nodes.map(x),
      y: picture.nodes.map(y),
      marker: {symbol: "circle", size: 5, color: "#f8fafc", line: outline},
      name: `${picture.nodes.length.toLocaleString("en")} evaluated places`,
      hovertext: picture.nodes.map((place) => said("evaluated", place)),
    });
  }
  if (picture.checks.length) {
    const missed = picture.checks.map((place) => place[3] - place[2]);
    const worst = Math.max(...missed.map(Math.abs).filter(Number.isFinite), 1e-300);
    traces.push({
      ...both,
      x: picture.checks.map(x),
      y: picture.checks.map(y),
      // From white where the picture is exact to pink where it is farthest off.
      marker: {
        symbol: "diamond",
        size: 7,
        color: missed.map((each) => Math.abs(each) / worst),
        cmin: 0,
        cmax: 1,
        colorscale: [[0, "#fce7f3"], [1, "#be185d"]],
        line: outline,
      },
      name: `${picture.checks.length.toLocaleString("en")} check points`,
      hovertext: picture.checks.map((place, k) =>
        `${said("check point", place)}, evaluated<br>the picture differs by ${spoken(missed[k], signed(short(2)))}`),
    });
  }
  return traces;
}

// [i, j] of the cells whose loss is known and not finite.
function nonFinite(picture) {
  const found = [];
  picture.alpha.forEach((_, i) => picture.beta.forEach((__, j) => {
    if (picture.kind(i, j) !== NONE && !Number.isFinite(picture.loss(i, j))) found.push([i, j]);
  }));
  return found;
}
