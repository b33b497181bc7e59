// A quantity of every layer over the checkpoints of the chosen run, as colours.

// Blue below 0, orange above, grey at it: told apart by people who confuse red and green.
const DIVERGING = [[0, "#0a5a9c"], [0.25, "#6aaed6"], [0.5, "#e8e8e8"], [0.75, "#f0a35e"], [1, "#a63603"]];

function layersShown(course) {
  const {names, measures} = course.layers, {values, own, words} = measures[state.part];
  const places = course.order[course.runs.findIndex((run) => run.name === state.run)] ?? [];
  const quantizer = Math.max(0, course.quantizers.findIndex((each) => each.name === state.under));
  const at = (place, layer) =>
    values[(own ? place : place * Math.max(1, course.quantizers.length) + quantizer) * names.length + layer];
  const kept = places.filter((place) => names.some((_, layer) => Number.isFinite(at(place, layer))));
  return {places: kept, at, words, own, quantizer: course.quantizers[quantizer]};
}

function layersPlot(course) {
  const {places, at, words, own, quantizer} = layersShown(course), {names} = course.layers;
  const height = 110 + Math.max(5, names.length) * Math.max(11, Math.min(34, 900 / names.length));
  document.getElementById("layers").style.height = `${height}px`;
  const numbers = names.map((_, layer) => places.map((place) => at(place, layer)));
  const all = numbers.flat().filter(Number.isFinite);
  const low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), -Infinity);
  const colours = layerColours(low, high, all);
  const row = (place) => course.rows.checkpoint.indexOf(place);
  const under = own ? "" : `<br>${quantizer.html}`;
  const data = [{
    type: "heatmap",
    x: places.map((_, k) => k),
    y: names.map((_, layer) => layer),
    z: numbers.map((line) => line.map((value) => (Number.isFinite(value) ? colours.shown(value) : null))),
    colorscale: colours.scale,
    zmin: colours.low,
    zmax: colours.high,
    xgap: places.length < 60 ? 1 : 0,
    ygap: names.length < 60 ? 1 : 0,
    text: numbers.map((line, layer) => line.map((value, k) =>
      `${escaped(names[layer].name)}<br>${whenWords(course, row(places[k]))}${under}<br>${escaped(words)}: <b>${spoken(value)}</b>`)),
    hoverinfo: "text",
    customdata: names.map(() => places.map(row)),
    colorbar: {
      title: {text: wrapped(words), side: "right", font: {size: 12}}, thickness: 14, outlinewidth: 0,
      tickvals: colours.ticks, ticktext: colours.tickWords,
    },
  }];
  const every = Math.ceil(places.length / 12), ticks = places.map((_, k) => k).filter((k) => k % every === 0);
  const layout = {
    ...baseLayout(),
    height,
    plot_bgcolor: colour("light"),
    margin: {l: 60, r: 10, t: 14, b: 56},
    xaxis: {
      ...axis(`checkpoint of ${escaped(state.run)}`),
      tickvals: ticks,
      ticktext: ticks.map((k) => course.checkpoints[places[k]].html),
      range: [-0.5, Math.max(0, places.length - 1) + 0.5],
    },
    yaxis: {
      ...axis(""),
      ...layerTicks(names),
      range: [names.length - 0.5, -0.5],
    },
    shapes: chosenColumn(course, places),
    annotations: all.length ? [] : [nothingHere(`Nothing of this was measured for ${escaped(state.run)}.`)],
  };
  document.querySelector('[data-said="layers"]').textContent = colours.said
    + (own && course.quantizers.length > 1 ? " This is the same under every quantizer." : "");
  return {data, layout};
}

function chosenColumn(course, places) {
  const at = places.indexOf(chosenCheckpoint(course)), line = {color: colour("model"), width: 2};
  const ends = {x0: at - 0.5, x1: at + 0.5, y0: -0.5, y1: course.layers.names.length - 0.5};
  return at < 0 ? [] : [{type: "rect", ...ends, line, fillcolor: "rgba(0,0,0,0)"}];
}

// Of many layers, not every one has room for its name.
function layerTicks(names) {
  const every = Math.ceil(names.length / 60), kept = names.map((_, k) => k).filter((k) => k % every === 0);
  return {tickvals: kept, ticktext: kept.map((k) => names[k].html), tickfont: {size: names.length > 30 ? 10 : 12}};
}

// Where numbers have both signs colours part at 0; else the logarithm where that was chosen and all are positive.
function layerColours(low, high, all) {
  if (low < 0 && high > 0) {
    const most = Math.max(-low, high), ticks = multiples(niceStep(most / 3), -most, most);
    const said = "Blue is below 0, orange above; the scale is linear, since numbers of both signs have no logarithm.";
    return {shown: Number, scale: DIVERGING, low: -most, high: most, ticks, tickWords: ticks.map((tick) => spoken(tick, short(3))), said};
  }
  if (state.partscale === "log" && low > 0 && high > low) {
    const ends = [Math.log10(low), Math.log10(high)], {tickvals, ticktext} = logTicks([[{y: all}]]);
    const there = tickvals.map((tick, k) => [Math.log10(tick), ticktext[k]]).filter(([tick]) => tick >= ends[0] && tick <= ends[1]);
    return {
      shown: Math.log10, scale: "Viridis", low: ends[0], high: ends[1],
      ticks: there.map(([tick]) => tick), tickWords: there.map(([, words]) => words), said: "Brighter is more.",
    };
  }
  const said = state.partscale === "log" && low <= 0 && high > low ? "Brighter is more; the scale is linear, since not every number is positive." : "Brighter is more.";
  const span = high > low ? high - low : 1, ticks = high > low ? multiples(niceStep(span / 5), low, high) : [low];
  return {shown: Number, scale: "Viridis", low, high: low + span, ticks, tickWords: ticks.map((tick) => spoken(tick, short(4))), said};
}

const wrapped = (words) => escaped(words).replace(", ", ",<br>");

function layersTable(course) {
  const {places, at} = layersShown(course);
  const rows = places.flatMap((place) => course.layers.names.map(({name}, layer) =>
    [state.run, course.checkpoints[place].name, state.under, name, at(place, layer)]));
  return [["run", "checkpoint", "quantizer", "layer", state.part], ...rows];
}
