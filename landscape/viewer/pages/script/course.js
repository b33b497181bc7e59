// A study as the page holds it: numbers by checkpoint and quantizer, and how runs and quantizers are told apart.

const SERIES_SIGNS = [
  ...["circle", "square", "diamond", "triangle-up", "x", "cross", "star", "triangle-down", "hexagon", "pentagon"],
  ...["bowtie", "hourglass"],
];

function openCourse(data) {
  const {checkpoints, rows, columns, runs, quantizers} = data;
  const course = {
    ...data,
    count: rows.checkpoint.length,
    // A number of a row, in the units of the table; NaN where there is none.
    number: (column, row) => {
      const {values, own} = columns[column] ?? {values: [], own: false};
      return values[own ? rows.checkpoint[row] : row] ?? NaN;
    },
    has: (column) => column in columns,
    own: (column) => columns[column]?.own || !quantizers.length, // the same under every quantizer
    checkpointOf: (row) => checkpoints[rows.checkpoint[row]],
    quantizerOf: (row) => quantizers[rows.quantizer[row]],
    runOf: (row) => runs[checkpoints[rows.checkpoint[row]].run],
    isAverage: (row) => checkpoints[rows.checkpoint[row]].kind !== "checkpoint",
  };
  course.order = along(course);
  return course;
}

// Of every run, the checkpoints as places in `checkpoints`, by step or tokens; averages left out.
function along(course) {
  const when = new Map();
  for (let row = 0; row < course.count; row++) {
    const at = [course.number("step", row), course.number("tokens", row)].find(Number.isFinite) ?? Infinity;
    if (!course.isAverage(row) && !when.has(course.rows.checkpoint[row])) when.set(course.rows.checkpoint[row], at);
  }
  return course.runs.map((_, run) => [...when.keys()]
    .filter((place) => course.checkpoints[place].run === run)
    .sort((a, b) => (when.get(a) === when.get(b) ? a - b : when.get(a) - when.get(b))));
}

function seriesStyle(course, quantizer) {
  const k = course.quantizers.findIndex((each) => each.name === quantizer);
  if (k < 0) return {colour: colour("ink"), sign: "circle"};
  return {colour: SERIES[k % SERIES.length], sign: SERIES_SIGNS[k % SERIES_SIGNS.length]};
}

// Of the runs shown, the k-th has the k-th dash; where they are more than dashes, none has.
function runDash(course, run) {
  const shown = shownRuns(course);
  return shown.length > DASHES.length ? "solid" : DASHES[Math.max(0, shown.findIndex((each) => each.name === run))];
}

const shownRuns = (course) => course.runs.filter((run) => state.runs.includes(run.name));
const shownQuantizers = (course) => course.quantizers.filter((each) => state.quantizers.includes(each.name));

// Rows of a run under a quantizer, in the order of the run: of `quantizer` null, one for each checkpoint.
function rowsAlong(course, run, quantizer) {
  const first = new Map();
  for (let row = 0; row < course.count; row++) {
    const place = course.rows.checkpoint[row];
    if (quantizer !== null && course.quantizerOf(row)?.name !== quantizer) continue;
    if (!first.has(place)) first.set(place, row);
  }
  const k = course.runs.findIndex((each) => each.name === run);
  return (course.order[k] ?? []).map((place) => first.get(place)).filter((row) => row !== undefined);
}

// The checkpoint that is looked at, as a place in `checkpoints`: the one chosen, else the run's last with a slice, or its last.
function chosenCheckpoint(course) {
  const places = course.order[course.runs.findIndex((each) => each.name === state.run)] ?? [];
  return places.find((place) => course.checkpoints[place].name === state.at)
    ?? places.filter((place) => course.slices[place]).pop() ?? places[places.length - 1];
}

const rowsAt = (course, place) => Array.from({length: course.count}, (_, row) => row).filter((row) => course.rows.checkpoint[row] === place);

// The ends of a 95 % interval: those the table has, else 1.96 standard errors; null where it knows none.
function interval(course, column, row) {
  if (column === "loss" || column === "loss_hat") return null; // its error moves all checkpoints together
  const ends = [`${column}_low`, `${column}_high`].map((name) => course.number(name, row));
  if (ends.every(Number.isFinite)) return ends;
  const value = course.number(column, row), error = course.number(`${column}_se`, row);
  return Number.isFinite(error) ? [value - 1.96 * error, value + 1.96 * error] : null;
}

// A value with its error, both to the digits that count, as described/words.py has it.
function measuredWords(value, error) {
  if (!Number.isFinite(value)) return "—";
  const sure = !(error > 1e-6 * Math.abs(value)), largest = sure ? Math.abs(value) : Math.max(Math.abs(value), error);
  const power = largest > 0 ? Math.floor(Math.log10(largest)) : 0;
  const scale = power > -4 && power < 6 ? 0 : power;
  const [shown, off] = [value / 10 ** scale, error / 10 ** scale];
  if (sure) return spoken(shown, short(4)) + (scale ? `·10${raised(scale)}` : "");
  const lead = Math.floor(Math.log10(off)), decimals = Math.min(20, Math.max(0, -lead + (off < 2 * 10 ** lead ? 1 : 0)));
  const inner = `${spoken(shown, fixed(decimals))} ± ${off.toFixed(decimals)}`;
  return scale ? `(${inner})·10${raised(scale)}` : inner;
}

const raised = (power) => String(power).replace(/[-\d]/g, (sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign]));

// Tokens in the largest unit that leaves no zeros before the point.
function tokenUnit(most) {
  for (const [size, word] of [[1e12, "trillions"], [1e9, "billions"], [1e6, "millions"], [1e3, "thousands"]]) {
    if (most >= size) return {size, word};
  }
  return {size: 1, word: ""};
}

// What lies below the panels: a number for every row, its title, and the kind of axis.
function acrossOf(course) {
  if (state.along === "run") {
    const shown = shownRuns(course).map((run) => run.name), quantizers = shownQuantizers(course).map((each) => each.name);
    // Quantizers stand side by side; what is the same under all of them, in the middle.
    const aside = (quantizer) => (quantizers.length > 1 && quantizer ? (0.6 * (quantizers.indexOf(quantizer) + 0.5)) / quantizers.length - 0.3 : 0);
    return {of: (row, quantizer) => shown.indexOf(course.runOf(row).name) + aside(quantizer), title: "", type: "linear", names: true};
  }
  if (state.along === "checkpoint") {
    const place = new Map(course.order.flatMap((own) => own.map((each, k) => [each, k + 1])));
    return {of: (row) => place.get(course.rows.checkpoint[row]) ?? NaN, title: "checkpoint of its run", type: "linear"};
  }
  const column = state.along.replace("log-", ""), type = state.along.startsWith("log-") ? "log" : "linear";
  if (column === "step") return {of: (row) => course.number("step", row), title: "training step", type};
  const values = Array.from({length: course.count}, (_, row) => course.number("tokens", row)).filter(Number.isFinite);
  const {size, word} = tokenUnit(values.reduce((most, each) => Math.max(most, each), 0));
  return {of: (row) => course.number("tokens", row) / size, title: `tokens seen${word ? ` (${word})` : ""}`, type};
}

function whenWords(course, row) {
  const step = course.number("step", row), tokens = course.number("tokens", row), {size, word} = tokenUnit(tokens);
  const parts = [`<b>${course.runOf(row).html}</b> ${course.checkpointOf(row).html}`];
  if (course.isAverage(row)) parts[0] += `, average ${escaped(course.checkpointOf(row).kind)}`;
  if (Number.isFinite(tokens)) parts.push(`${spoken(tokens / size, short(4))} ${word.replace(/s$/, "")} tokens`);
  else if (Number.isFinite(step)) parts.push(`step ${step}`);
  return parts.join("<br>");
}
