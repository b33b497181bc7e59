// A slice that is a line: the loss over α as one curve, with the named points and the places evaluated.

function curvePlot(picture) {
  const unit = unitOf(picture), {alpha, loss} = picture.curve;
  const value = (each) => MEASURES[state.measure].of(each, picture.origin);
  const x = Array.from(alpha, (a) => a / unit.length), losses = Array.from(loss);
  const evaluated = !picture.surface;
  const kind = evaluated ? EVALUATED : RECONSTRUCTED, [form, change] = lossForms(picture, kind);
  const data = errorBand(picture, x, losses, value);
  data.push({
    type: "scatter",
    x,
    y: losses.map((each) => (Number.isFinite(each) ? value(each) : NaN)),
    mode: picture.smooth ? "lines" : "lines+markers",
    line: {color: colour("curve"), width: 2.2, simplify: false},
    marker: {size: 5},
    name: "loss",
    showlegend: losses.some(Number.isFinite),
    hovertext: losses.map((each, k) =>
      `${placeWords(picture, unit, alpha[k], 0)}<br><b>loss ${spoken(each, form)}</b> ${LOSS_UNIT}<br>` +
      `${kindWords(picture, kind)}<br>${changeWords(picture, each, change)}`),
    hoverinfo: "text",
  });
  data.push(...evaluationMarks(picture, unit, (place) => place[0] / unit.length, (place) => value(place[2])));
  const shown = picture.points.filter((point) => point.inside && Number.isFinite(point.loss));
  for (const point of belowFirst(shown)) {
    data.push(pointMarker(picture, unit, point, point.alpha / unit.length, value(point.loss)));
  }
  const layout = {
    ...baseLayout(),
    showlegend: true,
    margin: {l: 58, r: 8, t: 26, b: 52},
    legend: {orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal"},
    xaxis: {
      ...axis(picture.axes[0] + unit.title),
      range: picture.ends.slice(0, 2).map((end) => end / unit.length),
      nticks: 12,
    },
    yaxis: {
      ...axis(scaleOf([picture]).title.replace("above the lowest ", "")),
      range: picture.limits.map(value),
      nticks: 8,
    },
    annotations: pointLabels(picture, unit, picture.offsets.curve, (point) => value(point.loss)),
    shapes: level(picture, value),
  };
  return {data, layout};
}

function curveTable(picture) {
  return [["alpha", "loss"], ...Array.from(picture.curve.alpha, (a, k) => [a, picture.curve.loss[k]])];
}
