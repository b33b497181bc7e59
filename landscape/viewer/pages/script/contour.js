// The contour of a slice: colours and lines of equal loss over (α, β), with the named points.

function contourTraces(picture, unit, scale, bar) {
  const broken = nonFinite(picture);
  const traces = [];
  if (broken.length) traces.push(greyCells(picture, unit, broken));
  if (picture.colours) traces.push(filled(picture, unit, scale, bar));
  if (picture.path) {
    traces.push({
      type: "scatter",
      x: Array.from(picture.path.alpha, (a) => a / unit.length),
      y: Array.from(picture.path.beta, (b) => b / unit.length),
      mode: "lines",
      line: {color: "rgba(255,255,255,0.75)", width: 1.5},
      hoverinfo: "skip",
      showlegend: false,
    });
  }
  if (broken.length) traces.push(crosses(picture, unit, broken));
  traces.push(...evaluationMarks(picture, unit, (place) => place[0] / unit.length, (place) => place[1] / unit.length));
  for (const point of belowFirst(picture.points)) {
    traces.push(pointMarker(picture, unit, point, point.alpha / unit.length, point.beta / unit.length));
  }
  return traces;
}

function filled(picture, unit, scale, bar) {
  const {alpha, beta} = picture;
  const rows = [], words = [];
  for (let j = 0; j < beta.length; j++) {
    rows.push(Array.from(alpha, (_, i) => {
      const loss = picture.loss(i, j);
      return Number.isFinite(loss) ? scale.shown(picture, loss) : NaN;
    }));
    words.push(Array.from(alpha, (_, i) => cellWords(picture, unit, i, j)));
  }
  const lines = scale.lines;
  return {
    type: "contour",
    x: Array.from(alpha, (a) => a / unit.length),
    y: Array.from(beta, (b) => b / unit.length),
    z: rows,
    zmin: scale.bottom,
    zmax: scale.top,
    colorscale: "Viridis",
    contours: {coloring: "heatmap", start: lines[0], end: lines[lines.length - 1], size: scale.step},
    line: {width: 0.8, color: "rgba(255,255,255,0.55)", smoothing: 0.6},
    hoverongaps: false,
    text: words,
    hoverinfo: "text",
    showscale: Boolean(bar),
    colorbar: bar && colourBar(scale, bar),
  };
}

function colourBar(scale, length) {
  return {
    title: {text: scale.title, side: "right", font: {size: 13}},
    thickness: 14,
    ypad: 0,
    len: length,
    xpad: 12,
    outlinewidth: 0,
    tickvals: scale.ticks,
    ticktext: scale.tickWords,
  };
}

// The non-finite cells and the finite ones beside them, where colours end at the cell's centre.
function greyCells(picture, unit, broken) {
  const {alpha, beta} = picture;
  const rows = Array.from(beta, () => new Array(alpha.length).fill(NaN));
  for (const [i, j] of broken) {
    for (let row = Math.max(0, j - 1); row <= Math.min(beta.length - 1, j + 1); row++) {
      for (let column = Math.max(0, i - 1); column <= Math.min(alpha.length - 1, i + 1); column++) {
        if (picture.kind(column, row) !== NONE) rows[row][column] = 1;
      }
    }
  }
  const pale = colour("pale");
  return {
    type: "heatmap",
    x: Array.from(alpha, (a) => a / unit.length),
    y: Array.from(beta, (b) => b / unit.length),
    z: rows,
    colorscale: [[0, pale], [1, pale]],
    showscale: false,
    hoverinfo: "skip",
  };
}

function crosses(picture, unit, broken) {
  const spacing = 450 / Math.max(picture.alpha.length, picture.beta.length); // pixels between cells, about
  return {
    type: "scatter",
    x: broken.map(([i]) => picture.alpha[i] / unit.length),
    y: broken.map(([, j]) => picture.beta[j] / unit.length),
    mode: "markers",
    marker: {
      symbol: "x-thin",
      size: Math.min(6, Math.max(1.5, 0.5 * spacing)),
      line: {width: Math.min(1.2, 0.2 * spacing), color: colour("grey")},
    },
    name: "non-finite loss",
    showlegend: true,
    hovertext: broken.map(([i, j]) => cellWords(picture, unit, i, j)),
    hoverinfo: "text",
  };
}

function pointLabels(picture, unit, offsets, height) {
  return picture.points
    .filter((point) => offsets[point.name])
    .map((point) => ({
      x: point.alpha / unit.length,
      y: height ? height(point) : point.beta / unit.length,
      ...labelOf(point, offsets[point.name]),
    }));
}

function contourPlot(picture) {
  const unit = unitOf(picture), scale = scaleOf([picture]);
  const [left, right, bottom, top] = (state.view ?? picture.ends).map((end) => end / unit.length);
  const base = baseLayout();
  const layout = {
    ...base,
    plot_bgcolor: colour("light"),
    margin: {l: 58, r: picture.colours ? 8 : 110, t: 26, b: 52},
    hoverdistance: 12, // pixels; a marker answers only when the pointer is on it, else the cell does
    showlegend: true,
    legend: {orientation: "h", x: 0, y: 1, yanchor: "bottom", itemsizing: "constant", itemclick: false},
    xaxis: {...axis(picture.axes[0] + unit.title), range: [left, right], nticks: picture.ticks},
    yaxis: {...axis(picture.axes[1] + unit.title), range: [bottom, top], nticks: 8},
    annotations: pointLabels(picture, unit, picture.offsets.contour),
    shapes: profileShape(picture, unit),
    dragmode: picture.colours ? "drawline" : "zoom",
    newshape: {line: {color: picture.colours ? "white" : colour("grey"), width: 1.5, dash: "dot"}},
    config: {modeBarButtonsToAdd: ["drawline"]},
  };
  if (picture.toOneScale) {
    Object.assign(layout.xaxis, {constrain: "domain", constraintoward: "right"});
    Object.assign(layout.yaxis, {scaleanchor: "x", scaleratio: 1, constrain: "domain", constraintoward: "middle"});
  }
  return {data: contourTraces(picture, unit, scale, picture.barLength), layout};
}

function contourTable(picture) {
  const rows = [["alpha", "beta", "loss", "evaluated"]];
  picture.alpha.forEach((a, i) => picture.beta.forEach((b, j) => {
    if (picture.kind(i, j) !== NONE) rows.push([a, b, picture.loss(i, j), Number(picture.kind(i, j) === EVALUATED)]);
  }));
  return rows;
}
