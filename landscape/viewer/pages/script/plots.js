// The plots of a page: each is made anew from what the reader chose, and can be saved.

const plots = new Map();
const CONFIG = {
  displaylogo: false,
  responsive: true,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage", "resetCameraLastSave3d", "hoverClosest3d"],
};
const FONT = getComputedStyle(document.documentElement).getPropertyValue("--font");

// `make` returns {data, layout}; `choices` are the names of what it depends on; `table` gives rows to save, names first.
function addPlot(id, make, choices, table) {
  if (document.getElementById(id)) plots.set(id, {make, choices: new Set(choices), table});
}

function drawPlot(id) {
  const {data, layout} = plots.get(id).make();
  const node = document.getElementById(id);
  // Plotly remembers the first range of axes to one scale and widens a later one to it, even in another unit.
  for (const name of ["xaxis", "yaxis"]) if (node._fullLayout?.[name]) delete node._fullLayout[name]._inputRange;
  return Plotly.react(node, data, layout, {...CONFIG, ...layout.config});
}

let waiting = new Set();

// Those that depend on what changed, once before the next frame.
function redraw(changed) {
  const empty = waiting.size === 0;
  for (const [id, plot] of plots) {
    if (!changed || [...plot.choices].some((name) => changed.has(name))) waiting.add(id);
  }
  if (!empty || !waiting.size) return;
  requestAnimationFrame(() => {
    const now = waiting;
    waiting = new Set();
    for (const id of now) drawPlot(id);
  });
}

function baseLayout() {
  const ink = colour("ink"), paper = colour("paper");
  return {
    template: "none",
    font: {family: FONT, size: 12.5, color: ink},
    paper_bgcolor: paper,
    plot_bgcolor: paper,
    hoverlabel: {bgcolor: paper, bordercolor: colour("grey"), font: {color: ink, size: 13}, align: "left"},
    modebar: {bgcolor: "rgba(0,0,0,0)", color: colour("grey"), activecolor: ink},
    hovermode: "closest",
    showlegend: false,
  };
}

function axis(title) {
  return {
    title: {text: title, font: {size: 13}, standoff: 8},
    ticks: "outside",
    ticklen: 4,
    tickcolor: colour("grey"),
    tickangle: 0,
    showline: true,
    linecolor: colour("grey"),
    gridcolor: colour("light"),
    showgrid: false,
    zeroline: false,
    automargin: true,
    exponentformat: "none",
  };
}

function save(id, kind) {
  const name = `${document.body.dataset.name || "page"}-${id}`;
  if (kind === "csv") return saveText(`${name}.csv`, csv(plots.get(id).table()));
  const node = document.getElementById(id);
  const {width, height} = node.getBoundingClientRect();
  return Plotly.downloadImage(node, {format: kind, filename: name, width, height, scale: kind === "png" ? 3 : 1});
}

function csv(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined || Number.isNaN(value) ? "" : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",") + "\n").join("");
}

function saveText(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function bindSaving() {
  for (const button of document.querySelectorAll("[data-save]")) {
    button.addEventListener("click", () => save(button.closest("figure").querySelector(".plot").id, button.dataset.save));
  }
}

// How far the page is, for those who wait for it: "flat" when all but what needs WebGL answers, then "all".
function drawn(stage) {
  document.documentElement.dataset.drawn = stage;
  performance.mark(stage);
}
