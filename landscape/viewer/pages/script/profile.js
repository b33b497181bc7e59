// The profile of a slice: the losses on the straight line that was chosen, beside the quadratic model of its start.

const SAMPLES = 241, BEYOND = 0.25; // of the line's length, before its start and after its end

// α and β of both ends: what was drawn or chosen, else from the first named point to the last.
function chosenLine(picture) {
  return state.line ?? picture.line;
}

function endsAt(picture, a, b) {
  const near = 1e-4 * Math.hypot(picture.ends[1] - picture.ends[0], picture.ends[3] - picture.ends[2]);
  return picture.points.find((point) => Math.hypot(point.alpha - a, point.beta - b) < near);
}

function sameLine(one, other) {
  return one.every((end, k) => Math.abs(end - other[k]) <= 1e-5 * Math.max(...other.map(Math.abs)));
}

// t and loss along the line; what was evaluated on it, where it is the line that was, else read off the picture.
function profileOf(picture) {
  const [a, b, c, d] = chosenLine(picture);
  const own = picture.line && sameLine([a, b, c, d], picture.line);
  if (own && picture.profile.evaluated && picture.profile.t.length) {
    return {t: Array.from(picture.profile.t), loss: Array.from(picture.profile.loss), evaluated: true};
  }
  const t = [], loss = [];
  for (let k = 0; k < SAMPLES; k++) {
    const share = -BEYOND + (1 + 2 * BEYOND) * (k / (SAMPLES - 1));
    const alpha = a + share * (c - a), beta = b + share * (d - b);
    if (!picture.inside(alpha, beta)) continue;
    t.push(share);
    loss.push(picture.at(alpha, beta));
  }
  return {t, loss, evaluated: false};
}

// L + gᵀd t + ½ dᵀHd t², with both derivatives of the picture along d at the start, by five-point differences.
function quadraticModel(picture) {
  const [a, b, c, d] = chosenLine(picture), length = Math.hypot(c - a, d - b);
  const sides = [picture.ends[1] - picture.ends[0], picture.ends[3] - picture.ends[2]];
  const cells = [sides[0] / (picture.alpha.length - 1), sides[1] / (picture.beta.length - 1)];
  // A polynomial is smooth; between evaluated cells a picture is not, and the step has to span some of them.
  const step = picture.surface?.coefficients ? 0.01 * Math.hypot(...sides) : 2 * Math.hypot(...cells);
  const at = (k) => {
    const alpha = a + (k * step * (c - a)) / length, beta = b + (k * step * (d - b)) / length;
    return picture.inside(alpha, beta) ? picture.at(alpha, beta) : NaN;
  };
  const [far, near, here, next, farther] = [-2, -1, 0, 1, 2].map(at);
  const slope = (far - 8 * near + 8 * next - farther) / (12 * step);
  const bend = (-far + 16 * near - 30 * here + 16 * next - farther) / (12 * step * step);
  return {start: here, first: slope * length, second: bend * length * length, slope, bend};
}

function profileWords(picture) {
  const [a, b, c, d] = chosenLine(picture), unit = unitOf(picture);
  const called = (at) => endsAt(picture, ...at)?.label ?? `(${placeWords(picture, unit, ...at)})`;
  return [called([a, b]), called([c, d])];
}

function profilePlot(picture) {
  const [a, b, c, d] = chosenLine(picture);
  const unit = unitOf(picture), length = Math.hypot(c - a, d - b);
  const {t, loss, evaluated} = profileOf(picture);
  const x = t.map((share) => (share * length) / unit.length);
  const [from, to] = profileWords(picture);
  const kind = evaluated ? EVALUATED : picture.surface ? RECONSTRUCTED : NONE;
  const how = kind === NONE ? "read off between evaluated cells" : kindWords(picture, kind);
  const [form, change] = lossForms(picture, kind === RECONSTRUCTED ? kind : EVALUATED);
  const said = t.map((share, k) =>
    `t = ${spoken(share, short(4))}, distance ${spoken(x[k], fixed(decimalsIn(picture, unit)))}<br>` +
    `<b>loss ${spoken(loss[k], form)}</b> ${LOSS_UNIT}<br>${how}<br>${changeWords(picture, loss[k], change)}`);
  const value = (each) => MEASURES[state.measure].of(each, picture.origin);
  const y = loss.map((each) => (Number.isFinite(each) ? value(each) : NaN));
  const data = errorBand(picture, x, loss, value);
  data.push({
    type: "scatter",
    x,
    y,
    mode: evaluated ? "lines+markers" : "lines",
    line: {color: colour("curve"), width: 2, simplify: false},
    marker: {size: 5},
    name: "loss",
    hovertext: said,
    hoverinfo: "text",
  });
  const model = quadraticModel(picture);
  const modelled = t.map((share) => value(model.start + model.first * share + 0.5 * model.second * share * share));
  if (modelled.some(Number.isFinite)) {
    data.push({
      type: "scatter",
      x,
      y: modelled,
      mode: "lines",
      line: {color: colour("model"), width: 1.6, dash: "dash"},
      name: `quadratic model at ${from}: L + gᵀd + ½ dᵀHd`,
      hovertext: t.map((share, k) => `quadratic model at ${from}<br>${spoken(modelled[k], short(6))}`),
      hoverinfo: "text",
    });
  }
  const shown = [[a, b, 0], [c, d, 1]].flatMap(([alpha, beta, share]) => {
    const point = endsAt(picture, alpha, beta);
    return point && Number.isFinite(point.loss) ? [[point, (share * length) / unit.length]] : [];
  });
  for (const [point, at] of shown) data.push(pointMarker(picture, unit, point, at, value(point.loss)));
  const heights = [...y, ...shown.map(([point]) => value(point.loss))].filter(Number.isFinite);
  const low = Math.min(...heights), high = Math.max(...heights), room = 0.1 * (high - low) || 0.5;
  const layout = {
    ...baseLayout(),
    showlegend: true,
    margin: {l: 58, r: 8, t: 26, b: 50},
    legend: {orientation: "h", x: 0, y: 1, yanchor: "bottom", itemclick: false},
    xaxis: {...axis(`distance from ${from} towards ${to}${unit.title}`), range: [x[0], x[x.length - 1]]},
    yaxis: {...axis(scaleOf([picture]).title.replace("above the lowest ", "")), range: [low - room, high + room], nticks: 6},
    annotations: shown.map(([point, at]) => ({x: at, y: value(point.loss), ...labelOf(point, [0, 27])})),
    shapes: level(picture, value),
  };
  return {data, layout};
}

// The losses within the error of a curve, as two traces with what lies between them filled.
function errorBand(picture, x, loss, value) {
  const {error} = picture;
  if (!(error > 0 && Number.isFinite(error)) || !loss.every(Number.isFinite)) return []; // plotly fills across gaps
  const plain = {type: "scatter", x, mode: "lines", line: {width: 0}, hoverinfo: "skip"};
  return [
    {...plain, y: loss.map((each) => value(each - error)), showlegend: false},
    {
      ...plain,
      y: loss.map((each) => value(each + error)),
      fill: "tonexty",
      fillcolor: colour("band"),
      name: `± ${picture.errorWords} nats`,
    },
  ];
}

// A dotted line at the loss of the origin.
function level(picture, value) {
  if (!Number.isFinite(picture.origin.loss)) return [];
  const y = value(picture.origin.loss);
  return [{type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, layer: "below", line: {color: colour("grey"), width: 1, dash: "dot"}}];
}

function profileTable(picture) {
  const [a, b, c, d] = chosenLine(picture), {t, loss} = profileOf(picture), model = quadraticModel(picture);
  const rows = t.map((share, k) => [
    share, share * Math.hypot(c - a, d - b), a + share * (c - a), b + share * (d - b), loss[k],
    model.start + model.first * share + 0.5 * model.second * share * share,
  ]);
  return [["t", "distance", "alpha", "beta", "loss", "quadratic_model"], ...rows];
}

// The line as it lies on the contour, its ends to be dragged.
function profileShape(picture, unit) {
  if (!picture.line) return [];
  const [x0, y0, x1, y1] = chosenLine(picture).map((end) => end / unit.length);
  const drawn = {color: picture.colours ? "white" : colour("grey"), width: 1.5, dash: "dot"};
  return [{type: "line", x0, y0, x1, y1, line: drawn, editable: true, layer: "above"}];
}

// Where an end that was dropped close to a named point belongs.
function snapped(picture, a, b) {
  const sides = [picture.ends[1] - picture.ends[0], picture.ends[3] - picture.ends[2]];
  const near = picture.points.find((point) =>
    Math.hypot((point.alpha - a) / sides[0], (point.beta - b) / sides[1]) < 0.02);
  return near ? [near.alpha, near.beta] : [a, b];
}
