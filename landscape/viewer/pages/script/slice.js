// The page of one slice: surface, contour and profile of one picture, all following what was chosen.

const PICTURED = ["units", "measure", "scale", "low", "high", "line", "theme"];

async function slicePage(data) {
  const picture = openPicture(data);
  declareScale("loss");
  declare("units", "distance", (key) => picture.units.some((unit) => unit.key === key));
  declare("places", data.placesShown);
  declare("line", null, finiteNumbers(4));
  declare("camera", null, finiteNumbers(3));
  declare("view", null, finiteNumbers(4));
  startTheme(() => redraw());
  addPlot("contour", () => contourPlot(picture), [...PICTURED, "places", "view"], () => contourTable(picture));
  addPlot("profile", () => profilePlot(picture), PICTURED, () => profileTable(picture));
  addPlot("curve", () => curvePlot(picture), ["units", "measure", "places"], () => curveTable(picture));
  bindControls();
  bindSaving();
  bindLine(picture);
  bindDistances(picture);
  if (picture.colours) bindRange(() => scaleOf([picture]));
  for (const id of plots.keys()) await drawPlot(id);
  const contour = document.getElementById("contour");
  if (contour) {
    followPlace([{id: "contour", picture, readout: "readout", looked: rested((at) => markOnSurface(picture, at))}]);
    bindContour(contour, picture);
  }
  drawn("flat");
  await painted(); // a person reads the flat plots while the surface is prepared
  addPlot("surface", () => surfacePlot(picture), PICTURED, () => contourTable(picture));
  if (plots.has("surface")) {
    await drawPlot("surface");
    bindSurface(document.getElementById("surface"), picture);
  }
  watch(redraw);
  drawn("all");
}

// Called once the pointer rests: the surface takes longer to draw than a pointer to move.
function rested(call) {
  let waiting;
  return (argument) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => call(argument), 100);
  };
}

const painted = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));

// A line drawn on the contour or dragged by its ends is the profile's; a rectangle zoomed into is kept.
function bindContour(contour, picture) {
  contour.on("plotly_relayout", (event) => {
    const unit = unitOf(picture).length;
    const shapes = contour.layout.shapes ?? [];
    if ("shapes" in event || Object.keys(event).some((name) => name.startsWith("shapes["))) {
      const drawn = shapes[shapes.length - 1];
      if (!drawn) return redraw(new Set(["line"])); // it was deleted, and comes back
      const ends = [drawn.x0 * unit, drawn.y0 * unit, drawn.x1 * unit, drawn.y1 * unit];
      const line = [...snapped(picture, ends[0], ends[1]), ...snapped(picture, ends[2], ends[3])];
      if (Math.hypot(line[2] - line[0], line[3] - line[1]) > 0) choose({line});
      redraw(new Set(["line"])); // of several shapes one stays
    } else if ("xaxis.range[0]" in event) {
      const {xaxis, yaxis} = contour.layout;
      choose({view: [...xaxis.range, ...yaxis.range].map((end) => end * unit)});
    } else if ("xaxis.autorange" in event) {
      choose({view: null});
      redraw(new Set(["view"]));
    }
  });
}

function bindSurface(surface, picture) {
  surface.on("plotly_relayout", (event) => {
    const eye = event["scene.camera"]?.eye;
    if (eye) choose({camera: [eye.x, eye.y, eye.z].map((each) => Number(each.toPrecision(4)))});
  });
  surface.on("plotly_hover", ({points: [point]}) => {
    lookAt([{id: "contour", picture, readout: "readout"}], null, point.x, point.y, false);
  });
}

// The two menus of ends; a line that was drawn freely is an end without a name.
function bindLine(picture) {
  const menus = ["from", "to"].map((end) => document.getElementById(`line-${end}`));
  if (!menus[0]) return;
  const show = () => {
    const [a, b, c, d] = chosenLine(picture);
    [[a, b], [c, d]].forEach((at, k) => {
      menus[k].value = endsAt(picture, ...at)?.name ?? "";
    });
    const [from, to] = profileWords(picture);
    document.getElementById("profile-title").innerHTML = `Profile from ${from} to ${to}`;
    document.getElementById("profile-model").innerHTML = modelWords(picture);
  };
  menus.forEach((menu, k) => menu.addEventListener("change", () => {
    const point = picture.points.find((each) => each.name === menu.value);
    const line = [...chosenLine(picture)];
    if (point) line.splice(2 * k, 2, point.alpha, point.beta);
    if (Math.hypot(line[2] - line[0], line[3] - line[1]) > 0) choose({line: sameLine(line, picture.line) ? null : line});
    else show();
  }));
  document.getElementById("line-reset").addEventListener("click", () => choose({line: null}));
  watch((changed) => (changed.has("line") || changed.has("units")) && show());
  show();
}

function modelWords(picture) {
  const {start, first, second} = quadraticModel(picture);
  if (!Number.isFinite(second)) return "The start lies too near the edge for a quadratic model.";
  const [, to] = profileWords(picture), [, , c, d] = chosenLine(picture);
  const real = endsAt(picture, c, d)?.loss ?? picture.at(c, d);
  const words = (value) => spoken(value, signed(short(3)));
  return (
    `Quadratic model for the whole way to ${to}: slope gᵀd = ${words(first)}, curvature ½ dᵀHd = ${words(second / 2)}, ` +
    `together <b>${words(first + second / 2)}</b> nats; the loss really changes by <b>${words(real - start)}</b>.`
  );
}

// Distances in the tables follow the unit.
function bindDistances(picture) {
  const show = () => {
    const unit = unitOf(picture);
    for (const cell of document.querySelectorAll("[data-distance]")) {
      cell.textContent = spoken(Number(cell.dataset.distance) / unit.length, fixed(decimalsIn(picture, unit)));
    }
    for (const word of document.querySelectorAll("[data-unit]")) word.textContent = unit.choice;
  };
  watch((changed) => changed.has("units") && show());
  show();
}
