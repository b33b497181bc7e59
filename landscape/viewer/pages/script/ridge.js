// Spectra of the chosen run, one above the other: how the eigenvalues of the Hessian are spread, over time.

const OVERLAP = 2.2; // how many base lines a curve may reach over

// Viridis at a share from 0 to 1, by its own corners.
function viridis(share) {
  const at = Math.max(0, Math.min(1, share)) * (VIRIDIS.length - 1), k = Math.min(VIRIDIS.length - 2, Math.floor(at));
  const channel = (colour, begin) => parseInt(colour.slice(begin, begin + 2), 16);
  const mixed = [1, 3, 5].map((begin) =>
    Math.round((1 - at + k) * channel(VIRIDIS[k], begin) + (at - k) * channel(VIRIDIS[k + 1], begin)));
  return `rgb(${mixed.join(",")})`;
}

// From early to late, without the end of viridis that is lost on the paper.
function shadeOf(k, count) {
  const share = count > 1 ? k / (count - 1) : 0.5;
  return isDark() ? 0.25 + 0.75 * share : 0.86 * share;
}

function ridgeSpectra(course) {
  const places = course.order[course.runs.findIndex((run) => run.name === state.run)] ?? [];
  return places.filter((place) => course.spectra[place]).map((place) => ({place, ...course.spectra[place]}));
}

function ridgePlot(course) {
  const spectra = ridgeSpectra(course), height = Math.max(260, Math.min(760, 150 + 60 * spectra.length));
  document.getElementById("ridge").style.height = `${height}px`;
  const floor = spectra.reduce((most, each) => Math.max(most, each.floor), 0);
  const heights = spectra.map((each) => Array.from(each.density, (value) => Math.log10(Math.max(value, floor) / floor)));
  const tallest = heights.flat().reduce((most, value) => Math.max(most, value), 1e-9);
  const data = [], chosen = chosenCheckpoint(course);
  // Later ones lie above and behind.
  for (let k = spectra.length - 1; k >= 0; k--) {
    const {points, place} = spectra[k], shade = viridis(shadeOf(k, spectra.length));
    const x = Array.from(points), y = heights[k].map((value) => k + (OVERLAP * value) / tallest);
    data.push({
      type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip",
      x: [x[0], ...x, x[x.length - 1]],
      y: [k, ...y, k],
      line: {width: 0},
      fillcolor: shade.replace("rgb", "rgba").replace(")", ",0.55)"),
    }, {
      type: "scatter", mode: "lines", x, y,
      line: {simplify: false, color: place === chosen ? colour("ink") : shade, width: place === chosen ? 2.4 : 1.5},
      hovertext: x.map((value, i) => ridgeWords(course, spectra[k], value, i)),
      hoverinfo: "text",
      customdata: x.map(() => course.rows.checkpoint.indexOf(place)),
    }, {
      type: "scatter", mode: "markers", x: spectra[k].ends, y: spectra[k].ends.map(() => k),
      marker: {symbol: "triangle-up", size: 8, color: shade, line: {color: colour("ink"), width: 0.8}},
      hovertext: spectra[k].ends.map((value) => `${course.checkpoints[place].html}<br>eigenvalue <b>${spoken(value)}</b>`),
      hoverinfo: "text",
    });
  }
  const layout = {
    ...baseLayout(),
    height,
    margin: {l: 96, r: 12, t: spectra.length ? 10 : 40, b: 50},
    xaxis: {...axis("eigenvalue λ"), zeroline: true, zerolinecolor: colour("pale")},
    yaxis: {
      ...axis(""),
      tickvals: spectra.map((_, k) => k),
      ticktext: spectra.map(({place}) => course.checkpoints[place].html),
      range: [-0.25, Math.max(1, spectra.length - 1 + OVERLAP) + 0.1],
    },
    annotations: spectra.length ? [] : [nothingHere(`No spectrum of ${escaped(state.run)} was measured.`)],
  };
  return {data, layout};
}

function ridgeWords(course, {place, density, error}, value, i) {
  const row = course.rows.checkpoint.indexOf(place);
  return `${whenWords(course, row)}<br>λ = ${spoken(value, short(3))}<br><b>${measuredWords(density[i], error[i])}</b> eigenvalues per unit of λ`;
}

const nothingHere = (text) => ({text, x: 0.5, y: 0.5, xref: "paper", yref: "paper", showarrow: false, font: {size: 14}});

function ridgeTable(course) {
  const rows = ridgeSpectra(course).flatMap(({place, points, density, error}) =>
    Array.from(points, (value, i) => [state.run, course.checkpoints[place].name, value, density[i], error[i]]));
  return [["run", "checkpoint", "eigenvalue", "density", "standard_error"], ...rows];
}
