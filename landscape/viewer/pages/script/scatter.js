// Any column against any other, a dot a checkpoint and quantizer; beside it how well they hang together.

const SCATTERED = ["runs", "quantizers", "x", "y", "xscale", "yscale"]; // what decides which rows are compared, and how
const RISES = ["delta_l", "change", "predicted", "predicted_diagonal", "predicted_grid", "predicted_length", "predicted_outputs"];

// By quantizer, the rows that are shown and have both numbers; one group where no quantizer makes a difference.
function scatterGroups(course) {
  const apart = !(course.own(state.x) && course.own(state.y));
  const groups = apart ? shownQuantizers(course).map((each) => each.name) : [null];
  return groups.map((quantizer) => {
    const rows = shownRuns(course).flatMap((run) => rowsAlong(course, run.name, quantizer))
      .filter((row) => [state.x, state.y].every((column) => Number.isFinite(course.number(column, row))));
    return {quantizer, rows};
  });
}

// Logarithmic where that was chosen and every number shown is positive.
function scatterScales(course, groups) {
  const rows = groups.flatMap((each) => each.rows);
  return {
    x: state.xscale === "log" && rows.length > 0 && rows.every((row) => course.number(state.x, row) > 0),
    y: state.yscale === "log" && rows.length > 0 && rows.every((row) => course.number(state.y, row) > 0),
  };
}

function scatterPlot(course) {
  const groups = scatterGroups(course), scales = scatterScales(course, groups), time = state.hue === "time";
  const when = course.has("tokens") ? "tokens" : "step", all = groups.flatMap((each) => each.rows);
  const times = all.map((row) => course.number(when, row)).filter(Number.isFinite);
  const {size, word} = when === "tokens" ? tokenUnit(Math.max(0, ...times)) : {size: 1, word: ""};
  const data = groups.map(({quantizer, rows}, k) => {
    const {colour: ink, sign} = seriesStyle(course, quantizer);
    return {
      type: "scatter",
      mode: "markers",
      x: rows.map((row) => course.number(state.x, row)),
      y: rows.map((row) => course.number(state.y, row)),
      name: quantizer === null ? "every quantizer alike" : course.quantizers.find((each) => each.name === quantizer).html,
      marker: {
        symbol: sign,
        size: 7,
        opacity: 0.8,
        color: time ? rows.map((row) => course.number(when, row) / size) : ink,
        line: {width: 0.5, color: colour("paper")},
        ...(time ? timeColours(times, size, k === 0 && `${when}${word ? ` (${word})` : ""}`) : {}),
      },
      customdata: rows,
      hovertext: rows.map((row) => scatterWords(course, row, quantizer)),
      hoverinfo: "text",
    };
  });
  data.push({
    type: "scatter", mode: "markers", hoverinfo: "skip", name: "the chosen checkpoint",
    ...chosenDots(course, all),
    marker: {symbol: "circle-open", size: 14, color: colour("ink"), line: {width: 1.6}},
  });
  if (RISES.includes(state.x) && RISES.includes(state.y)) data.push(equalLine(course, all, scales));
  const layout = {
    ...baseLayout(),
    showlegend: true,
    legend: {orientation: "h", x: 0, y: 1.01, yanchor: "bottom", font: {size: 12}, itemclick: false, itemdoubleclick: false},
    margin: {l: 66, r: 10, t: 40, b: 50},
    xaxis: scatterAxis(course, state.x, scales.x, all),
    yaxis: scatterAxis(course, state.y, scales.y, all),
  };
  return {data, layout};
}

function chosenDots(course, rows) {
  const chosen = rows.filter((row) => course.rows.checkpoint[row] === chosenCheckpoint(course));
  return {x: chosen.map((row) => course.number(state.x, row)), y: chosen.map((row) => course.number(state.y, row))};
}

// Scrubbing moves the rings alone.
function moveRings(course) {
  const groups = scatterGroups(course), {x, y} = chosenDots(course, groups.flatMap((each) => each.rows));
  Plotly.restyle(document.getElementById("scatter"), {x: [x], y: [y]}, [groups.length]);
}

function scatterAxis(course, column, log, rows) {
  const made = {...axis(course.columns[column]?.title ?? ""), showgrid: true, exponentformat: "power"};
  if (!log) return {...made, type: "linear"};
  return {...made, type: "log", ...logTicks([[{y: rows.map((row) => course.number(column, row))}]])};
}

function timeColours(times, size, title) {
  const ends = [Math.min(...times) / size, Math.max(...times) / size];
  const bar = {title: {text: title, side: "right", font: {size: 12}}, thickness: 12, outlinewidth: 0};
  return {colorscale: "Viridis", cmin: ends[0], cmax: ends[1], showscale: Boolean(title), colorbar: bar};
}

// Where both numbers are the same.
function equalLine(course, rows, scales) {
  const values = rows.flatMap((row) => [course.number(state.x, row), course.number(state.y, row)]);
  const positive = scales.x || scales.y ? values.filter((value) => value > 0) : values;
  const ends = [Math.min(...positive), Math.max(...positive)];
  const line = {color: colour("grey"), dash: "dot", width: 1.2};
  return {type: "scatter", mode: "lines", x: ends, y: ends, line, name: "equal", hoverinfo: "skip"};
}

function scatterWords(course, row, quantizer) {
  const said = (column) => `${column}: <b>${measuredWords(course.number(column, row), course.number(`${column}_se`, row))}</b>`;
  const under = quantizer === null ? "" : `<br>${course.quantizerOf(row).html}`;
  return `${whenWords(course, row)}${under}<br>${said(state.x)}<br>${said(state.y)}`;
}

// Coefficients of every group, raw and of the changes from checkpoint to checkpoint.
function coefficientsOf(course) {
  const groups = scatterGroups(course), scales = scatterScales(course, groups);
  const numbers = (column, log, rows) => rows.map((row) => (log ? Math.log : Number)(course.number(column, row)));
  return groups.map(({quantizer, rows}) => {
    const x = numbers(state.x, scales.x, rows), y = numbers(state.y, scales.y, rows);
    const names = rows.map((row) => course.runOf(row).name);
    const [raw, changes] = [false, true].map((differenced) =>
      correlated(x, y, names, {differenced, quantiles: course.quantiles}));
    return {quantizer, raw, changes};
  });
}

function showCoefficients(course) {
  const table = document.getElementById("coefficients");
  if (!table) return;
  const found = coefficientsOf(course);
  const cell = (kind, text) => Object.assign(document.createElement(kind), {textContent: text});
  const head = document.createElement("tr");
  head.append(...["", "n, changes", "r", "ρ", "r of changes", "ρ of changes"].map((text) => cell("th", text)));
  head.firstChild.className = "words";
  const lines = found.map(({quantizer, raw, changes}) => {
    const line = document.createElement("tr");
    line.append(Object.assign(cell("td", quantizer ?? "every quantizer"), {className: "words"}));
    line.append(cell("td", `${raw.rows}, ${changes.rows}`));
    for (const each of [raw, changes]) {
      for (const kind of ["pearson", "spearman"]) line.append(coefficientCell(each, kind));
    }
    return line;
  });
  const parts = [document.createElement("thead"), document.createElement("tbody")];
  parts[0].append(head);
  parts[1].append(...lines);
  table.replaceChildren(...parts);
  document.getElementById("coefficients-note").textContent = coefficientsNote(course, found);
}

// A coefficient, and below it its interval, for whose ends there is less room.
function coefficientCell(each, kind) {
  const made = document.createElement("td");
  if (each.why) return Object.assign(made, {textContent: "—", title: each.why});
  const {value, low, high} = each[kind], form = fixed(2);
  const ends = Object.assign(document.createElement("span"), {className: "unit", textContent: `[${spoken(low, form)}, ${spoken(high, form)}]`});
  made.append(Object.assign(document.createElement("b"), {textContent: spoken(value, form)}), document.createElement("br"), ends);
  if (low > 0 || high < 0) made.className = "sure";
  return made;
}

function coefficientsNote(course, found) {
  const scales = scatterScales(course, scatterGroups(course)), logs = ["x", "y"].filter((end) => scales[end]).map((end) => state[end]);
  const said = [logs.length ? `r is that of the logarithm of ${[...new Set(logs)].join(" and ")}.` : "r is that of the numbers as they are."];
  for (const end of ["x", "y"]) {
    if (state[`${end}scale`] === "log" && !scales[end]) said.push(`${state[end]} is not positive everywhere, and so on a linear axis.`);
  }
  if (found.some((each) => each.raw.why || each.changes.why)) said.push("A dash stands where fewer than four rows can be compared, or a column does not vary.");
  said.push("Bold black: the interval excludes 0.");
  return said.join(" ");
}

function scatterTable(course) {
  const columns = [state.x, state.y, `${state.x}_se`, `${state.y}_se`].filter((column) => course.has(column));
  const rows = scatterGroups(course).flatMap((each) => each.rows.map((row) => [
    course.runOf(row).name, course.checkpointOf(row).name, each.quantizer ?? "", ...columns.map((column) => course.number(column, row)),
  ]));
  return [["run", "checkpoint", "quantizer", ...columns], ...rows];
}
