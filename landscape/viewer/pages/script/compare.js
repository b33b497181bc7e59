// The page of several slices: panels with one pair of axes and one scale of colours, and their profiles in one plot.

async function comparePage(data) {
  const pictures = data.pictures.map(openPicture);
  const places = pictures.map((_, k) => String(k));
  declareScale(pictures.some((each) => each.quantized) ? "relative" : "change");
  declare("units", "distance", (key) => ["distance", "relative", "step"].includes(key));
  declare("shown", data.shown, (names) => Array.isArray(names) && names.every((name) => places.includes(name)));
  declare("places", false);
  declare("line", null);
  startTheme(() => redraw());
  const shown = () => pictures.filter((_, k) => state.shown.includes(String(k)));
  const scale = () => scaleOf(shown().length ? shown() : pictures);
  const choices = ["units", "measure", "scale", "low", "high", "shown", "places", "theme"];
  pictures.forEach((picture, k) => {
    addPlot(`panel-${k}`, () => panelPlot(picture, scale(), data.bounds, pictures), choices, () => contourTable(picture));
  });
  addPlot("profiles", () => profilesPlot(shown(), pictures), choices, () => profilesTable(shown()));
  bindControls();
  bindSaving();
  bindRange(scale);
  const hide = () => pictures.forEach((_, k) => {
    document.querySelector(`[data-panel="${k}"]`).hidden = !state.shown.includes(String(k));
  });
  const bar = () => drawBar(scale());
  hide();
  bar();
  for (const id of plots.keys()) if (!document.getElementById(id).closest("[hidden]")) await drawPlot(id);
  const panels = pictures.map((picture, k) => ({id: `panel-${k}`, picture, readout: `readout-${k}`}));
  const followed = new Set();
  const follow = () => {
    const visible = panels.filter((panel) => state.shown.includes(panel.id.slice(6)));
    followPlace(visible.filter((panel) => !followed.has(panel.id)), () => panels.filter((panel) => followed.has(panel.id)));
    visible.forEach((panel) => followed.add(panel.id));
  };
  follow();
  watch(async (changed) => {
    if (changed.has("shown")) {
      hide();
      for (const place of state.shown) if (!followed.has(`panel-${place}`)) await drawPlot(`panel-${place}`);
      follow();
    }
    redraw(changed);
    bar();
  });
  drawn("flat");
  drawn("all");
}

// Each in its own unit, on axes that hold them all.
function panelPlot(picture, scale, bounds, pictures) {
  const unit = unitOf(picture);
  const reach = (place, choose) => choose(...pictures.map((each) =>
    (state.units === "distance" ? bounds[place] : each.ends[place]) / unitOf(each).length));
  const short = {distance: "", relative: ", % of ‖Θ‖", step: ", steps"}[unit.key] ?? "";
  const layout = {
    ...baseLayout(),
    plot_bgcolor: colour("light"),
    margin: {l: 44, r: 6, t: 6, b: 44},
    hoverdistance: 12,
    xaxis: {...axis(`α${short}`), range: [reach(0, Math.min), reach(1, Math.max)], nticks: 5},
    yaxis: {...axis(`β${short}`), range: [reach(2, Math.min), reach(3, Math.max)], nticks: 7},
    annotations: pointLabels(picture, unit, picture.offsets.contour),
    shapes: profileShape(picture, unit).map((shape) => ({...shape, editable: false})),
  };
  if (pictures.every((each) => each.toOneScale)) {
    Object.assign(layout.xaxis, {constrain: "domain"});
    Object.assign(layout.yaxis, {scaleanchor: "x", scaleratio: 1, constrain: "domain", constraintoward: "middle"});
  }
  return {data: contourTraces(picture, unit, scale, null), layout};
}

function profilesPlot(shown, pictures) {
  const data = [], annotations = [];
  let high = 0, low = 0, far = 0;
  for (const picture of shown) {
    if (!picture.line) continue;
    const number = pictures.indexOf(picture), unit = unitOf(picture), [a, b, c, d] = picture.line;
    const drawn = SERIES[number % SERIES.length], dash = DASHES[Math.floor(number / SERIES.length) % DASHES.length];
    const length = Math.hypot(c - a, d - b) / unit.length;
    const value = (loss) => MEASURES[state.measure].of(loss, picture.origin);
    const {t, loss} = profileOf(picture), model = quadraticModel(picture);
    const kept = t.map((share, k) => [share, loss[k]]).filter(([share]) => share >= -1e-9 && share <= 1.12);
    const x = kept.map(([share]) => share * length), y = kept.map(([, each]) => (Number.isFinite(each) ? value(each) : NaN));
    const same = {type: "scatter", x, legendgroup: picture.name};
    const said = kept.map(([share, each]) =>
      `<b>${escaped(picture.name)}</b>, t = ${spoken(share, short(3))}<br>loss ${spoken(each, significant(6))}<br>` +
      changeWords(picture, each, signed(short(3))));
    data.push({...same, y, mode: "lines", line: {color: drawn, width: 2.4, dash}, name: escaped(picture.name), hovertext: said, hoverinfo: "text"});
    data.push({
      ...same,
      y: kept.map(([share]) => value(model.start + model.first * share + 0.5 * model.second * share * share)),
      mode: "lines",
      line: {color: drawn, width: 1.2, dash: "dash"},
      showlegend: false,
      hoverinfo: "skip",
    });
    const end = picture.points.find((point) => point.name === picture.quantized) ?? picture.last;
    if (Number.isFinite(end.loss)) {
      const marker = pointMarker(picture, unit, end, length, value(end.loss));
      marker.marker.line = {color: drawn, width: 2.5};
      data.push(marker);
      const label = {...labelOf({...end, label: escaped(picture.name)}, [0, 22]), showarrow: false, yshift: 20};
      const crowded = unit.key === "step" || shown.length > 4 || picture.name.length > 20;
      if (!crowded) annotations.push({...label, x: length, y: value(end.loss)});
      high = Math.max(high, value(end.loss));
    }
    low = Math.min(low, ...y.filter(Number.isFinite));
    far = Math.max(far, 1.12 * length);
  }
  const unitWords = {distance: "", relative: ", in % of ‖Θ‖", step: ", in own steps"}[state.units];
  const base = state.measure === "loss" ? Math.min(...shown.map((each) => each.lowest)) : low;
  return {
    data,
    layout: {
      ...baseLayout(),
      showlegend: true,
      legend: {orientation: "h", x: 0, y: 1.02, yanchor: "bottom"},
      margin: {l: 58, r: 12, t: 30, b: 50},
      xaxis: {...axis(`distance along the step of quantization${unitWords}`), range: [-0.02 * far, far]},
      yaxis: {...axis(scaleOf(shown.length ? shown : pictures).title), range: [base - 0.06 * (high - base), high + 0.22 * (high - base)]},
      annotations,
    },
  };
}

function profilesTable(shown) {
  const rows = [["slice", "t", "distance", "loss", "quadratic_model"]];
  for (const picture of shown.filter((each) => each.line)) {
    const [a, b, c, d] = picture.line, {t, loss} = profileOf(picture), model = quadraticModel(picture);
    t.forEach((share, k) => rows.push([
      picture.name, share, share * Math.hypot(c - a, d - b), loss[k],
      model.start + model.first * share + 0.5 * model.second * share * share,
    ]));
  }
  return rows;
}

// The colours that all panels share, with the losses they stand for.
function drawBar(scale) {
  const bar = document.getElementById("bar");
  bar.querySelector(".ends").innerHTML = scale.title;
  const shades = bar.querySelector(".shades");
  shades.style.background = `linear-gradient(to right, ${VIRIDIS.join(", ")})`;
  shades.replaceChildren(...scale.ticks.map((tick, k) => {
    const mark = document.createElement("span");
    mark.style.left = `${(100 * (tick - scale.bottom)) / (scale.top - scale.bottom)}%`;
    mark.textContent = scale.tickWords[k];
    return mark;
  }));
}
