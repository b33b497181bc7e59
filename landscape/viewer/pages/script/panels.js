// Columns along the training, one panel above the other over the same axis.

const PANEL = 118, BETWEEN = 30, AROUND = {l: 66, r: 10, t: 54, b: 48}; // pixels
const DECADES = 12; // what spans more than a factor of so much is drawn logarithmic
const PANELLED = ["runs", "quantizers", "panels", "along", "heights", "averages", "run", "theme"];

const shownPanels = (course) => course.measures.filter((each) => state.panels.includes(each.column));

function panelsPlot(course) {
  const measures = shownPanels(course), across = acrossOf(course);
  const inner = Math.max(1, measures.length) * (PANEL + BETWEEN) - BETWEEN;
  const height = inner + AROUND.t + AROUND.b;
  document.getElementById("panels").style.height = `${height}px`;
  const bottom = `y${measures.length > 1 ? measures.length : ""}`;
  const layout = {
    ...baseLayout(),
    height,
    margin: AROUND,
    showlegend: true,
    legend: {orientation: "h", x: 0, y: 1 + 22 / inner, yanchor: "bottom", font: {size: 12}, itemclick: false, itemdoubleclick: false},
    xaxis: {...axis(across.title), type: across.type, anchor: bottom, ...(across.names ? namedRuns(course) : {})},
    annotations: [],
    shapes: chosenShape(course, across),
  };
  const data = legendTraces(course, measures);
  let below = 0;
  measures.forEach((measure, k) => {
    const name = k ? `yaxis${k + 1}` : "yaxis", top = 1 - (k * (PANEL + BETWEEN)) / inner;
    const traces = panelTraces(course, measure, across, k ? `y${k + 1}` : "y");
    const {log, dropped, floor} = heightsOf(traces);
    if (log) keepAbove(traces, floor);
    below += dropped;
    data.push(...traces.flat());
    layout[name] = {
      ...axis(""),
      automargin: false, // there is room, and with many axes it takes long to find out
      domain: [Math.max(0, top - PANEL / inner), top],
      type: log ? "log" : "linear",
      nticks: 5,
      separatethousands: true,
      showgrid: true,
      ...(log ? logTicks(traces) : {}),
    };
    layout.annotations.push({
      text: `<b>${measure.title}</b>`, x: 0, y: top, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom",
      showarrow: false, font: {size: 12.5}, captureevents: false,
    });
  });
  sayPanels(course, measures, across, below);
  return {data, layout};
}

// Names of runs as ticks; of many, slanted.
function namedRuns(course) {
  const shown = shownRuns(course);
  return {tickvals: shown.map((_, k) => k), ticktext: shown.map((run) => run.html), tickangle: shown.length > 4 ? -40 : 0};
}

// A line for each run and quantizer; of more runs than there are dashes, the chosen one before a crowd of all others.
function panelTraces(course, measure, across, yaxis) {
  const under = course.own(measure.column) ? [null] : shownQuantizers(course).map((each) => each.name);
  const shown = shownRuns(course), traces = [];
  const alone = across.names ? [] : shown.length > DASHES.length ? shown.filter((run) => run.name === state.run) : shown;
  const crowd = shown.filter((run) => !alone.includes(run));
  const rowsOf = (run, quantizer) => rowsAlong(course, run.name, quantizer)
    .filter((row) => Number.isFinite(course.number(measure.column, row)) && Number.isFinite(across.of(row)));
  for (const quantizer of crowd.length ? under : []) {
    const rows = crowd.map((run) => rowsOf(run, quantizer));
    if (across.names) traces.push(seriesTraces(course, measure, across, yaxis, null, quantizer, rows.flat()));
    else traces.push([crowdTrace(course, measure, across, yaxis, quantizer, rows)]);
  }
  for (const run of alone) {
    for (const quantizer of under) {
      const rows = rowsOf(run, quantizer);
      if (rows.length) traces.push(seriesTraces(course, measure, across, yaxis, run, quantizer, rows));
    }
  }
  if (state.averages) traces.push(...averageTraces(course, measure, across, yaxis, under));
  return traces;
}

// Many runs as one trace, with a gap after each; none of their intervals.
function crowdTrace(course, measure, across, yaxis, quantizer, runs) {
  const rows = runs.flatMap((own) => [...own, null]), known = (of) => rows.map((row) => (row === null ? null : of(row)));
  const {colour: ink, sign} = seriesStyle(course, quantizer);
  return {
    type: "scatter", yaxis, xaxis: "x", mode: "lines+markers", opacity: 0.45, showlegend: false, hoverinfo: "text",
    x: known((row) => across.of(row, quantizer)),
    y: known((row) => measure.factor * course.number(measure.column, row)),
    line: {color: ink, width: 1},
    marker: {symbol: sign, size: 3, color: ink},
    customdata: rows,
    hovertext: known((row) => panelWords(course, measure, row)),
  };
}

function seriesTraces(course, measure, across, yaxis, run, quantizer, rows) {
  const {column, factor} = measure, {colour: ink, sign} = seriesStyle(course, quantizer);
  const x = rows.map((row) => across.of(row, quantizer)), y = rows.map((row) => factor * course.number(column, row));
  const ends = rows.map((row) => interval(course, column, row)?.map((end) => factor * end));
  const all = ends.every(Boolean), strong = across.names || state.run === run.name;
  const line = {
    type: "scatter", x, y, yaxis, xaxis: "x",
    mode: across.names || rows.length === 1 ? "markers" : rows.length > 60 ? "lines" : "lines+markers",
    line: {color: ink, width: strong ? 2 : 1.3, dash: run ? runDash(course, run.name) : "solid"},
    marker: {symbol: sign, size: strong ? 6 : 5, color: ink},
    opacity: strong || shownRuns(course).length === 1 ? 1 : 0.6,
    showlegend: false,
    customdata: rows,
    hovertext: rows.map((row) => panelWords(course, measure, row)),
    hoverinfo: "text",
  };
  if (!all) return [line];
  if (line.mode === "markers") {
    const error = {type: "data", symmetric: false, thickness: 1.2, width: 3, color: ink};
    error.array = ends.map(([, high], k) => high - y[k]);
    error.arrayminus = ends.map(([low], k) => y[k] - low);
    return [{...line, error_y: error}];
  }
  const band = {
    type: "scatter", yaxis, xaxis: "x", mode: "lines", fill: "toself", fillcolor: ink, hoverinfo: "skip",
    x: [...x, ...[...x].reverse()],
    y: [...ends.map(([low]) => low), ...ends.map(([, high]) => high).reverse()],
    opacity: strong ? 0.22 : 0.12, line: {width: 0}, showlegend: false,
  };
  return [band, line];
}

// Averages of checkpoints are no points of a run: open signs that no line joins.
function averageTraces(course, measure, across, yaxis, under) {
  const names = new Set(shownRuns(course).map((run) => run.name)), traces = [];
  for (const quantizer of under) {
    const rows = Array.from({length: course.count}, (_, row) => row).filter((row) => course.isAverage(row)
      && names.has(course.runOf(row).name) && (quantizer === null || course.quantizerOf(row)?.name === quantizer)
      && Number.isFinite(course.number(measure.column, row)) && Number.isFinite(across.of(row)));
    const {colour: ink, sign} = seriesStyle(course, quantizer);
    traces.push([{
      type: "scatter", mode: "markers", yaxis, xaxis: "x", showlegend: false, hoverinfo: "text",
      x: rows.map((row) => across.of(row, quantizer)),
      y: rows.map((row) => measure.factor * course.number(measure.column, row)),
      marker: {symbol: `${sign}-open`, size: 8, color: ink, line: {width: 1.4}},
      hovertext: rows.map((row) => panelWords(course, measure, row)),
    }]);
  }
  return traces;
}

function panelWords(course, {column, title, factor}, row) {
  const value = factor * course.number(column, row), ends = interval(course, column, row);
  const said = ends ? ` [${ends.map((end) => spoken(factor * end, short(4))).join(", ")}]` : "";
  const quantizer = course.own(column) ? "" : `<br>${course.quantizerOf(row)?.html ?? ""}`;
  return `${whenWords(course, row)}${quantizer}<br>${title}: <b>${measuredWords(value, NaN)}</b>${said}`;
}

// Logarithmic where asked for, or where positive numbers span decades and hardly any are not positive.
function heightsOf(traces) {
  const values = traces.map((each) => each[each.length - 1].y).flat().filter(Number.isFinite), positive = values.filter((value) => value > 0);
  const least = positive.reduce((a, b) => Math.min(a, b), Infinity), most = positive.reduce((a, b) => Math.max(a, b), 0);
  const spans = most > DECADES * least && positive.length > 0.9 * values.length;
  const log = positive.length > 0 && (state.heights === "log" || (state.heights === "auto" && spans));
  return {log, dropped: log ? values.length - positive.length : 0, floor: least / 4};
}

// What reaches down to 0 and below ends, on a logarithmic axis, where that axis does.
function keepAbove(traces, floor) {
  for (const trace of traces.flat()) {
    if (trace.fill) trace.y = trace.y.map((value) => Math.max(value, floor));
    if (trace.error_y) trace.error_y.arrayminus = trace.error_y.arrayminus.map((off, k) => Math.min(off, trace.y[k] - floor));
  }
}

// Of few decades also 2 and 5, else powers of ten alone; within one, those of a linear axis.
function logTicks(traces) {
  const values = traces.map((each) => each[each.length - 1].y).flat().filter((value) => value > 0);
  const low = Math.log10(Math.min(...values)), high = Math.log10(Math.max(...values)), ticks = [];
  if (high - low < 0.7) ticks.push(...multiples(niceStep((10 ** high - 10 ** low || 10 ** high) / 5), 0.9 * 10 ** low, 1.1 * 10 ** high));
  else for (let power = Math.floor(low) - 1; power <= Math.ceil(high); power++) {
    for (const digit of high - low < 1.6 ? [1, 2, 5] : [1]) ticks.push(digit * 10 ** power);
  }
  const every = Math.ceil(ticks.length / 9);
  const kept = ticks.filter((_, k) => k % every === 0), room = 0.06 * (high - low) + 0.03;
  const words = kept.map((tick) => (tick >= 1e-3 && tick < 1e6 ? Number(tick.toPrecision(3)).toLocaleString("en", {maximumSignificantDigits: 3}) : `10${raised(Math.round(Math.log10(tick)))}`));
  return {tickvals: kept, ticktext: words, range: [low - room, high + room]};
}

// Quantizers and runs that are shown, without a place on the panels.
function legendTraces(course, measures) {
  const found = [], nowhere = {type: "scatter", x: [null], y: [null], hoverinfo: "skip"};
  if (measures.some((each) => !course.own(each.column))) {
    for (const each of shownQuantizers(course)) {
      const {colour: ink, sign} = seriesStyle(course, each.name);
      found.push({...nowhere, name: each.html, mode: "lines+markers", line: {color: ink}, marker: {symbol: sign, color: ink, size: 7}});
    }
  }
  const runs = shownRuns(course);
  if (runs.length > 1 && runs.length <= DASHES.length && state.along !== "run") {
    for (const run of runs) {
      found.push({...nowhere, name: run.html, mode: "lines", line: {color: colour("ink"), dash: runDash(course, run.name), width: run.name === state.run ? 2.2 : 1.3}});
    }
  }
  return found;
}

function sayPanels(course, measures, across, below) {
  const said = [];
  const runs = shownRuns(course).length;
  if (!runs) said.push("No run is chosen.");
  if (!measures.length) said.push("No panel is chosen.");
  if (runs > DASHES.length && state.along !== "run") said.push(`Of ${runs} runs the chosen one, ${state.run}, is drawn stronger and with its intervals; all others are thin lines.`);
  if (across.type === "log") said.push("What was measured at 0 has no place on a logarithmic axis.");
  if (state.averages) said.push("Open signs are averages of checkpoints.");
  if (below) said.push(`${below} numbers that are not positive have no place on a logarithmic panel.`);
  document.querySelector('[data-said="panels"]').textContent = said.join(" ");
}

// The upright line where the chosen checkpoint is.
function chosenShape(course, across) {
  const place = chosenCheckpoint(course);
  const row = course.rows.checkpoint.indexOf(place);
  const at = row < 0 ? NaN : across.of(row);
  if (!Number.isFinite(at) || (across.type === "log" && at <= 0)) return [];
  const line = {color: colour("model"), width: 1.4, dash: "dot"};
  return [{type: "line", xref: "x", yref: "paper", x0: at, x1: at, y0: 0, y1: 1, line, layer: "below"}];
}

function panelsTable(course) {
  const names = ["run", "checkpoint", "kind", "quantizer", "step", "tokens"];
  const columns = shownPanels(course).flatMap(({column}) => [column, `${column}_se`, `${column}_low`, `${column}_high`])
    .filter((column) => course.has(column));
  const rows = Array.from({length: course.count}, (_, row) => row).filter((row) => state.runs.includes(course.runOf(row).name)
    && (!course.quantizerOf(row) || state.quantizers.includes(course.quantizerOf(row).name))
    && (state.averages || !course.isAverage(row)));
  return [[...names, ...columns], ...rows.map((row) => [
    course.runOf(row).name, course.checkpointOf(row).name, course.checkpointOf(row).kind, course.quantizerOf(row)?.name,
    course.number("step", row), course.number("tokens", row), ...columns.map((column) => course.number(column, row)),
  ])];
}
