// The page of a study: panels along the training, one checkpoint of it, columns against columns, spectra, layers.

async function trajectoryPage(data) {
  const course = openCourse(data), pictures = new Map();
  Object.assign(window.landscape, {correlated, coefficients: () => coefficientsOf(course)});
  document.body.dataset.name = data.name; // of what is saved
  declareCourse(course);
  startTheme(() => redraw());
  const looked = ["run", "at", "runs", "theme"];
  addPlot("panels", () => panelsPlot(course), PANELLED, () => panelsTable(course));
  addPlot("beside", () => besidePlot(course, pictures), [...looked, "slice"], () => besideTable(course, pictures));
  addPlot("scatter", () => scatterPlot(course), [...SCATTERED, "run", "hue", "theme"], () => scatterTable(course));
  if (Object.keys(course.spectra).length) addPlot("ridge", () => ridgePlot(course), looked, () => ridgeTable(course));
  if (course.layers) addPlot("layers", () => layersPlot(course), ["run", "theme", "part", "under", "partscale"], () => layersTable(course));
  bindControls();
  bindSaving();
  bindSeveral();
  bindScrub(course);
  document.getElementById("slice-of")?.addEventListener("change", (event) => choose({slice: Number(event.target.value)}));
  showNumbers(course);
  showSlice(course);
  for (const id of ["panels", "beside"]) if (plots.has(id)) await drawPlot(id);
  drawn("flat");
  await painted(); // a person reads the panels while the rest is prepared
  for (const id of ["scatter", "ridge", "layers"]) if (plots.has(id)) await drawPlot(id);
  for (const id of ["panels", "scatter", "ridge", "layers"]) bindClicks(course, id);
  showCoefficients(course);
  watch(redraw);
  watch((changed) => changed.has("run") && !state.runs.includes(state.run) && choose({runs: [...state.runs, state.run]}));
  watch((changed) => {
    const has = (...names) => names.some((name) => changed.has(name));
    if (has("run", "at", "quantizers")) showNumbers(course);
    if (has("run", "at", "slice", "quantizers")) showSlice(course);
    if (has("at") && changed.size === 1) moveMarks(course);
    else if (has("at")) redraw(new Set(["run"]));
    if (has(...SCATTERED)) showCoefficients(course);
  });
  drawn("all");
}

function declareCourse(course) {
  const {shown, layers} = course, names = (list) => list.map((each) => each.name);
  const someOf = (known) => (chosen) => Array.isArray(chosen) && chosen.every((name) => known.includes(name));
  const oneOf = (known) => (name) => known.includes(name);
  const options = (choice) => [...document.querySelectorAll(`select[data-choice="${choice}"] option`)].map((each) => each.value);
  const menu = (choice, otherwise) => declare(choice, otherwise, oneOf(options(choice)));
  declare("runs", shown.runs, someOf(names(course.runs)));
  declare("quantizers", names(course.quantizers), someOf(names(course.quantizers)));
  declare("panels", shown.panels, someOf(course.measures.map((each) => each.column)));
  menu("along", options("along")[0] ?? "run");
  menu("heights", "auto");
  declare("averages", false);
  declare("run", shown.run, oneOf(names(course.runs)));
  if (!state.runs.includes(state.run)) state.runs = [...state.runs, state.run]; // an address may name it alone
  declare("at", "");
  declare("slice", 0, Number.isInteger);
  menu("x", shown.pair[0]);
  menu("y", shown.pair[1]);
  menu("xscale", "log");
  menu("yscale", "log");
  menu("hue", "quantizer");
  declare("part", Object.keys(layers?.measures ?? {none: 0})[0], (name) => name in (layers?.measures ?? {}));
  menu("under", course.quantizers[0]?.name ?? "");
  menu("partscale", "log");
  declareScale("loss");
  declare("units", "distance");
  declare("places", false);
}

// Scrubbing moves what marks the checkpoint; the plots stay as they are.
function moveMarks(course) {
  Plotly.relayout(document.getElementById("panels"), {shapes: chosenShape(course, acrossOf(course))});
  if (plots.has("scatter")) moveRings(course);
  if (plots.has("layers")) Plotly.relayout(document.getElementById("layers"), {shapes: chosenColumn(course, layersShown(course).places)});
}

// The boxes that fold away: how many are ticked, all of them or none, and those that fit what was typed.
function bindSeveral() {
  for (const count of document.querySelectorAll("[data-count]")) {
    const name = count.dataset.count, boxes = [...document.querySelectorAll(`input[data-choice="${name}"]`)];
    const show = () => {
      count.textContent = `${state[name].length} of ${boxes.length}`;
    };
    watch((changed) => changed.has(name) && show());
    show();
    const fits = (box) => !box.closest("label").hidden;
    for (const button of document.querySelectorAll(`[data-set="${name}"]`)) {
      button.addEventListener("click", () => {
        const wanted = (box) => (fits(box) ? button.dataset.to === "all" : state[name].includes(box.value));
        if (button.dataset.to === "default") choose({[name]: defaults[name].value});
        else choose({[name]: boxes.filter(wanted).map((box) => box.value)});
      });
    }
    document.querySelector(`[data-filter="${name}"]`)?.addEventListener("input", ({target}) => {
      const parts = target.value.toLowerCase().split("*");
      for (const box of boxes) {
        const words = box.closest("label").textContent.toLowerCase();
        let from = 0;
        box.closest("label").hidden = !parts.every((part) => {
          const found = words.indexOf(part, from);
          from = found + part.length;
          return found >= 0;
        });
      }
    });
  }
  // What unfolds over the page folds again when one turns to something else.
  addEventListener("pointerdown", ({target}) => foldOthers(target));
  addEventListener("focusin", ({target}) => foldOthers(target));
  addEventListener("keydown", ({key, target}) => {
    const open = key === "Escape" && target.closest?.(".several[open]");
    if (!open) return;
    open.open = false;
    open.querySelector("summary").focus();
  });
}

function foldOthers(target) {
  for (const each of document.querySelectorAll(".several[open]")) if (!each.contains(target)) each.open = false;
}
