// A cross on contours at the place looked at: under the pointer, or moved by the arrow keys, in all plots alike.

// `panels`: {id, picture, readout, looked} of contours, the last if somebody else wants to know the place; `all`, those that show the same place.
function followPlace(panels, all = () => panels) {
  for (const panel of panels) {
    const node = document.getElementById(panel.id);
    for (const way of ["across", "along"]) {
      node.append(Object.assign(document.createElement("div"), {className: `cross ${way}`, hidden: true}));
    }
    node.on("plotly_hover", ({points: [point]}) => lookAt(all(), panel, point.x, point.y, false));
    node.addEventListener("mouseleave", () => all().forEach(forget));
    node.addEventListener("blur", () => all().forEach(forget));
    node.addEventListener("keydown", (event) => step(all(), panel, event));
  }
}

const KEYS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1]};

function step(panels, panel, event) {
  if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const {picture} = panel, [right, up] = KEYS[event.key], far = event.shiftKey ? 10 : 1;
  const unit = unitOf(picture).length;
  const from = panel.at ? panel.at.map((each) => each * unit) : [picture.origin.alpha, picture.origin.beta];
  const [i, j] = picture.cell(...from);
  const clamp = (k, line) => Math.max(0, Math.min(line.length - 1, k));
  const next = [clamp(i + far * right, picture.alpha), clamp(j + far * up, picture.beta)];
  lookAt(panels, panel, picture.alpha[next[0]] / unit, picture.beta[next[1]] / unit, true);
}

// x and y in the unit shown: where panels have units of their own, the same place on the axes is looked at.
function lookAt(panels, from, x, y, aloud) {
  for (const panel of panels) {
    const {picture} = panel, unit = unitOf(picture), a = x * unit.length, b = y * unit.length;
    panel.at = [x, y];
    const there = picture.inside(a, b);
    cross(panel, there, x, y);
    if (from) panel.looked?.(there ? [a, b] : null);
    const readout = document.getElementById(panel.readout);
    readout.setAttribute("aria-live", aloud && panel === from ? "polite" : "off");
    const words = there ? cellWords(picture, unit, ...picture.cell(a, b)) : "beyond the rectangle";
    readout.innerHTML = words.replaceAll("<br>", ", ");
  }
}

function cross(panel, there, along, up) {
  const node = document.getElementById(panel.id), {xaxis, yaxis} = node._fullLayout;
  const x = xaxis.d2p(along), y = yaxis.d2p(up);
  const shown = there && x >= 0 && x <= xaxis._length && y >= 0 && y <= yaxis._length;
  const [flat, upright] = node.querySelectorAll(".cross");
  for (const each of [flat, upright]) each.hidden = !shown;
  Object.assign(flat.style, {left: `${xaxis._offset}px`, width: `${xaxis._length}px`, top: `${yaxis._offset + y}px`});
  Object.assign(upright.style, {top: `${yaxis._offset}px`, height: `${yaxis._length}px`, left: `${xaxis._offset + x}px`});
}

function forget(panel) {
  panel.at = null;
  panel.looked?.(null);
  for (const each of document.querySelectorAll(`#${panel.id} .cross`)) each.hidden = true;
}
