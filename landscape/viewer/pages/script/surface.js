// The surface of a slice: the loss as height over the plane, in the colours of the contour.

const LOOKED = "looked at"; // the trace that marks the place the contour is asked about
const MOST_LINES = 101; // along each side of the sheet; a finer grid is thinned for it, and for nothing else

function surfacePlot(picture) {
  const unit = unitOf(picture), scale = scaleOf([picture]);
  const span = scale.top - scale.bottom;
  const floor = scale.bottom - 0.25 * span, top = scale.top + 0.05 * span;
  const height = (loss, lift = 0) => Math.min(Math.max(scale.shown(picture, loss), floor), scale.top) + lift * span;
  const data = [sheet(picture, unit, scale)];
  const broken = nonFinite(picture);
  if (broken.length) {
    data.push({
      ...crosses(picture, unit, broken),
      type: "scatter3d",
      z: broken.map(() => top),
      marker: {size: 2.5, color: colour("grey")},
      showlegend: false,
    });
  }
  if (picture.path) data.push(onSheet(picture, unit, pathPlaces(picture), height, "white"));
  if (picture.line) data.push(onSheet(picture, unit, linePlaces(picture), height, colour("drawn")));
  // A marker sits just above its loss, or the surface would swallow half of it.
  const shown = picture.points.filter((point) => point.inside && Number.isFinite(point.shown));
  const raised = (point) => height(point.shown, point.small ? 0.015 : 0.03);
  if (shown.length) data.push(...standing(picture, unit, shown, floor, raised));
  data.push({
    type: "scatter3d",
    x: [null],
    y: [null],
    z: [null],
    mode: "markers",
    marker: {size: 6, symbol: "circle", color: colour("drawn"), line: {color: "#ffffff", width: 2}},
    hoverinfo: "skip",
    meta: LOOKED,
  });
  const [x, y, z] = state.camera ?? picture.camera;
  const walls = {backgroundcolor: colour("paper"), gridcolor: colour("pale"), zerolinecolor: colour("pale"), showspikes: false, nticks: 7};
  const scaled = (at) => at / unit.length;
  const layout = {
    ...baseLayout(),
    margin: {l: 0, r: 0, t: 0, b: 0},
    scene: {
      xaxis: {range: picture.ends.slice(0, 2).map(scaled), title: {text: "α"}, ...walls},
      yaxis: {range: picture.ends.slice(2).map(scaled), title: {text: "β"}, ...walls},
      zaxis: {
        ...walls,
        range: [floor, top],
        tickvals: scale.ticks.filter((_, k) => k % 2 === 0 || scale.log),
        ticktext: scale.tickWords.filter((_, k) => k % 2 === 0 || scale.log),
        title: {text: scale.log ? "" : state.measure === "relative" ? "%" : "loss"},
      },
      aspectmode: "manual",
      aspectratio: picture.aspect,
      camera: {eye: {x, y, z}, center: {x: 0, y: 0, z: -0.16}},
      dragmode: "turntable",
      annotations: pointLabels(picture, unit, picture.offsets.surface).map((label, k) => ({
        ...label,
        z: raised(picture.points.filter((point) => picture.offsets.surface[point.name])[k]),
      })),
    },
  };
  return {data, layout};
}

// Markers of all points in one trace, and the leaders that they stand on in another: each trace takes its time to set up.
function standing(picture, unit, points, floor, raised) {
  const x = points.map((point) => point.alpha / unit.length), y = points.map((point) => point.beta / unit.length);
  const z = points.map(raised), tall = points.flatMap((point, k) => (point.small ? [] : [k]));
  const style = points.map(pointStyle);
  const gaps = (value) => tall.flatMap((k) => [...value(k), null]);
  return [
    {
      type: "scatter3d",
      x: gaps((k) => [x[k], x[k]]),
      y: gaps((k) => [y[k], y[k]]),
      z: gaps((k) => [floor, z[k]]),
      mode: "lines",
      line: {color: colour("ink"), width: 3},
      hoverinfo: "skip",
    },
    {
      type: "scatter3d",
      x,
      y,
      z,
      mode: "markers",
      marker: {
        size: points.map((point) => (point.small ? 1.2 * pointSize(picture, point) : 13)), // a single number would be twice as large
        opacity: 1,
        symbol: style.map((each) => each.symbol),
        color: style.map((each) => each.color),
        line: {color: "#1f2933", width: 1.5},
      },
      hovertext: points.map((point) => pointWords(picture, unit, point)),
      hoverinfo: "text",
    },
  ];
}

// Mark the place (α, β) that the contour is asked about; nothing where `at` is null.
function markOnSurface(picture, at) {
  const node = document.getElementById("surface"), trace = node?.data?.findIndex(({meta}) => meta === LOOKED) ?? -1;
  if (trace < 0) return;
  const unit = unitOf(picture), scale = scaleOf([picture]), loss = at ? picture.at(...at) : NaN;
  const height = Math.min(scale.shown(picture, loss), scale.top) + 0.02 * (scale.top - scale.bottom);
  const place = Number.isFinite(loss) ? [at[0] / unit.length, at[1] / unit.length, height] : [null, null, null];
  if (place[0] === node.data[trace].x[0] && place[1] === node.data[trace].y[0]) return;
  Plotly.restyle(node, {x: [[place[0]]], y: [[place[1]]], z: [[place[2]]]}, [trace]);
}

function thinned(line) {
  const step = Math.ceil((line.length - 1) / (MOST_LINES - 1));
  const kept = [];
  for (let k = 0; k < line.length; k += step) kept.push(k);
  if (kept[kept.length - 1] !== line.length - 1) kept.push(line.length - 1);
  return kept;
}

function sheet(picture, unit, scale) {
  const along = thinned(picture.alpha), up = thinned(picture.beta);
  const height = (i, j) => {
    const loss = picture.loss(i, j);
    return Number.isFinite(loss) ? Math.min(scale.shown(picture, loss), scale.top) : NaN;
  };
  const z = up.map((j) => along.map((i) => height(i, j)));
  const first = scale.lines[0], last = Math.min(scale.lines[scale.lines.length - 1], besideGaps(z));
  const lines = {show: first <= last, start: first, end: last, size: scale.step};
  return {
    type: "surface",
    x: along.map((i) => picture.alpha[i] / unit.length),
    y: up.map((j) => picture.beta[j] / unit.length),
    z,
    text: along.map((i) => up.map((j) => cellWords(picture, unit, i, j))), // looked up by (x, y), unlike z
    hoverinfo: "text",
    cmin: scale.bottom,
    cmax: scale.top,
    colorscale: "Viridis",
    showscale: false,
    contours: {
      z: {...lines, color: "rgba(255,255,255,0.5)", width: 1, highlight: false},
      x: {highlight: false},
      y: {highlight: false},
    },
    lighting: {ambient: 0.85, diffuse: 0.35, specular: 0.04, roughness: 0.9},
  };
}

// The lowest height near a cell that has none: plotly refines the sheet, and of a line that meets a gap it makes one with
// ends nowhere, which takes seconds to draw where no graphics card does it.
function besideGaps(z) {
  let lowest = Infinity;
  z.forEach((row, j) => row.forEach((value, i) => {
    if (!(value < lowest)) return;
    const near = z.slice(Math.max(0, j - 2), j + 3).flatMap((line) => line.slice(Math.max(0, i - 2), i + 3));
    if (near.some(Number.isNaN)) lowest = value;
  }));
  return lowest;
}

function pathPlaces({path}) {
  const count = path.alpha.length - 1;
  return Array.from({length: 12 * count + 1}, (_, k) => {
    const leg = Math.min(count - 1, Math.floor(k / 12)), share = k / 12 - leg;
    return ["alpha", "beta"].map((name) => path[name][leg] + share * (path[name][leg + 1] - path[name][leg]));
  });
}

function linePlaces(picture) {
  const [a, b, c, d] = chosenLine(picture);
  return Array.from({length: 61}, (_, k) => [a + (k / 60) * (c - a), b + (k / 60) * (d - b)]);
}

// A line of places, lying on the sheet.
function onSheet(picture, unit, places, height, drawn) {
  const inside = places.filter(([a, b]) => picture.inside(a, b));
  return {
    type: "scatter3d",
    x: inside.map(([a]) => a / unit.length),
    y: inside.map(([, b]) => b / unit.length),
    z: inside.map(([a, b]) => height(picture.at(a, b), 0.015)),
    mode: "lines",
    line: {color: drawn, width: 3},
    hoverinfo: "skip",
  };
}
