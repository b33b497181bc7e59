// One checkpoint among the others: the slider that chooses it, its numbers, and a slice around it.

function bindScrub(course) {
  const slider = document.getElementById("scrub"), said = document.getElementById("scrub-at");
  const places = () => course.order[course.runs.findIndex((run) => run.name === state.run)] ?? [];
  const show = () => {
    const own = places(), k = own.indexOf(chosenCheckpoint(course));
    slider.max = Math.max(0, own.length - 1);
    slider.value = k;
    slider.disabled = own.length < 2;
    const words = own.length ? `${course.checkpoints[own[k]].name} (${k + 1} of ${own.length})` : "none";
    slider.setAttribute("aria-valuetext", words);
    said.textContent = words;
  };
  slider.addEventListener("input", () => choose({at: course.checkpoints[places()[slider.value]].name}));
  for (const button of document.querySelectorAll("[data-goto]")) {
    button.addEventListener("click", () => goTo(button.dataset.gotoRun, button.dataset.goto));
  }
  watch((changed) => (changed.has("at") || changed.has("run")) && show());
  show();
}

// Look at a checkpoint; its run is shown from now on.
function goTo(run, name) {
  choose({run, at: name, runs: state.runs.includes(run) ? state.runs : [...state.runs, run]});
}

// A click on what stands for a row chooses its checkpoint.
function bindClicks(course, id) {
  document.getElementById(id)?.on("plotly_click", ({points: [point]}) => {
    if (typeof point.customdata === "number" && !course.isAverage(point.customdata)) {
      goTo(course.runOf(point.customdata).name, course.checkpointOf(point.customdata).name);
    }
  });
}

// What is known of the checkpoint, then what each quantizer does to it.
function showNumbers(course) {
  const node = document.getElementById("numbers"), place = chosenCheckpoint(course);
  if (place === undefined) return node.replaceChildren();
  const rows = rowsAt(course, place), first = rows[0];
  const title = document.createElement("p");
  title.className = "hint at";
  title.innerHTML = whenWords(course, first).replaceAll("<br>", ", "); // names come escaped from Python
  const shown = new Set(shownQuantizers(course).map((each) => each.name));
  const under = rows.filter((row) => course.quantizerOf(row) && shown.has(course.quantizerOf(row).name));
  const known = course.measures.filter(({column}) => rows.some((row) => Number.isFinite(course.number(column, row))));
  const parts = [title, ownNumbers(course, known.filter(({column}) => course.own(column)), first)];
  const apart = known.filter(({column}) => !course.own(column));
  if (apart.length && under.length) parts.push(numbersByQuantizer(course, apart, under));
  node.replaceChildren(...parts);
}

function ownNumbers(course, measures, row) {
  const list = Object.assign(document.createElement("dl"), {className: "facts"});
  for (const {column, brief, factor} of measures) {
    const entry = document.createElement("div"), name = document.createElement("dt"), value = document.createElement("dd");
    name.innerHTML = brief; // HTML of ours
    value.textContent = numberWords(course, column, factor, row);
    entry.append(name, value);
    list.append(entry);
  }
  return list;
}

function numbersByQuantizer(course, measures, rows) {
  const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  head.append(Object.assign(document.createElement("th"), {textContent: "Rounded by", className: "words"}));
  for (const {brief} of measures) head.append(Object.assign(document.createElement("th"), {innerHTML: brief})); // HTML of ours
  for (const row of rows) {
    const line = body.insertRow(), {name} = course.quantizerOf(row);
    line.append(Object.assign(document.createElement("td"), {textContent: name, className: "words"}));
    for (const {column, factor} of measures) line.insertCell().textContent = numberWords(course, column, factor, row);
  }
  const scroll = Object.assign(document.createElement("div"), {className: "scroll"});
  scroll.append(table);
  return scroll;
}

// The error of a loss is left out here, too: it is common to all checkpoints.
function numberWords(course, column, factor, row) {
  const value = factor * course.number(column, row);
  const error = column === "loss" ? NaN : factor * course.number(`${column}_se`, row);
  return Number.isFinite(value) ? measuredWords(value, error) : "—";
}

const slicesHere = (course) => course.slices[chosenCheckpoint(course)] ?? [];

function besidePlot(course, pictures) {
  const here = slicesHere(course), plain = here[Math.min(state.slice, here.length - 1)];
  if (!plain) return {data: [], layout: {...baseLayout(), xaxis: {visible: false}, yaxis: {visible: false}}};
  if (!pictures.has(plain)) pictures.set(plain, openPicture({...plain, barLength: 1}));
  const picture = pictures.get(plain), unit = picture.units[0];
  if (picture.isLine) return withoutRoom(curvePlot(picture));
  const layout = {
    ...baseLayout(),
    plot_bgcolor: colour("light"),
    margin: {l: 54, r: 8, t: 10, b: 48},
    xaxis: {...axis(picture.axes[0]), range: picture.ends.slice(0, 2), nticks: 6},
    yaxis: {...axis(picture.axes[1]), range: picture.ends.slice(2), nticks: 6},
    annotations: pointLabels(picture, unit, picture.offsets.contour),
  };
  if (picture.toOneScale) {
    Object.assign(layout.xaxis, {constrain: "domain", constraintoward: "right"});
    Object.assign(layout.yaxis, {scaleanchor: "x", scaleratio: 1, constrain: "domain", constraintoward: "middle"});
  }
  return {data: contourTraces(picture, unit, scaleOf([picture]), 1), layout};
}

const withoutRoom = ({data, layout}) => ({data, layout: {...layout, showlegend: false, margin: {...layout.margin, t: 10}}});

// Which slice is beside the panels, where its page is; without one, how to make it.
function showSlice(course) {
  const here = slicesHere(course), place = chosenCheckpoint(course), figure = document.getElementById("beside")?.closest("figure");
  const menu = document.getElementById("slice-of"), none = document.getElementById("no-slice");
  if (figure) figure.hidden = !here.length;
  none.textContent = "";
  if (!here.length && place !== undefined) {
    const {run, name} = course.checkpoints[place], under = shownQuantizers(course)[0]?.name ?? course.quantizers[0]?.name ?? "gptq-w3-g128";
    const command = document.createElement("code");
    command.textContent = `landscape slice ${course.runs[run].name}@${name} --quant ${under}`;
    none.append("No slice of this checkpoint was made. ", command, " makes one.");
  }
  if (!figure || !here.length) return;
  const k = Math.min(state.slice, here.length - 1), {title, address} = here[k];
  menu.replaceChildren(...here.map((each, i) => new Option(each.title, i)));
  menu.value = k;
  document.getElementById("slice-menu").hidden = here.length < 2;
  const hint = document.getElementById("slice-hint");
  hint.replaceChildren("Every place is one setting of the weights; the darker, the lower the loss. ");
  if (address) hint.append(Object.assign(document.createElement("a"), {href: address, textContent: `${title}: its own page`}));
  else hint.append(title);
}

function besideTable(course, pictures) {
  const here = slicesHere(course), picture = pictures.get(here[Math.min(state.slice, here.length - 1)]);
  return picture ? (picture.isLine ? curveTable(picture) : contourTable(picture)) : [["alpha", "beta", "loss"]];
}
