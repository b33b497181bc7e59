// What the reader chose, and the address that brings it back: #units=relative&line=0,0,1.2,0.3

const state = {};
const defaults = {};
const watchers = [];

// A choice with its default; whatever an address says that `allowed` does not accept is ignored.
function declare(name, otherwise, allowed = () => true) {
  defaults[name] = {value: otherwise, allowed};
  state[name] = read(name);
}

function watch(watcher) {
  watchers.push(watcher);
}

function choose(changes) {
  const changed = Object.keys(changes).filter((name) => written(changes[name]) !== written(state[name]));
  if (!changed.length) return;
  Object.assign(state, changes);
  const said = new URLSearchParams();
  for (const name of Object.keys(defaults)) {
    if (written(state[name]) !== written(defaults[name].value)) said.set(name, written(state[name]));
  }
  const address = String(said).replaceAll("%2C", ",");
  history.replaceState(null, "", address ? `#${address}` : location.pathname + location.search);
  for (const watcher of watchers) watcher(new Set(changed));
}

function written(value) {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map(written).join(",");
  if (typeof value === "number") return String(Number(value.toPrecision(6)));
  return String(value);
}

function read(name) {
  const {value, allowed} = defaults[name];
  const text = new URLSearchParams(location.hash.slice(1)).get(name);
  if (text === null) return value;
  const found = understood(text, value);
  return allowed(found) ? found : value;
}

// In the kind of the default: a switch, a number, or else words; null stands for numbers with commas between them.
function understood(text, like) {
  if (typeof like === "boolean") return text === "true";
  if (typeof like === "number") return Number(text);
  if (like === null) return text.split(",").map((part) => (part.trim() ? Number(part) : NaN));
  if (Array.isArray(like)) return text === "" ? [] : text.split(",");
  return text;
}

const finiteNumbers = (count) => (value) => Array.isArray(value) && value.length === count && value.every(Number.isFinite);

addEventListener("hashchange", () => choose(Object.fromEntries(Object.keys(defaults).map((name) => [name, read(name)]))));

// Every control of the page that says which choice it makes.
function bindControls() {
  for (const input of document.querySelectorAll("[data-choice]")) {
    const name = input.dataset.choice;
    const show = () => {
      if (input.type === "checkbox") {
        input.checked = Array.isArray(state[name]) ? state[name].includes(input.value) : state[name];
      } else if (input.type === "radio") {
        input.checked = input.value === state[name];
      } else input.value = state[name];
    };
    input.addEventListener(input.type === "search" ? "input" : "change", () => {
      if (input.type !== "checkbox") choose({[name]: input.value});
      else if (!Array.isArray(state[name])) choose({[name]: input.checked});
      else {
        const all = [...document.querySelectorAll(`[data-choice="${name}"]`)];
        choose({[name]: all.filter((box) => box.checked).map((box) => box.value)});
      }
    });
    watch((changed) => changed.has(name) && show());
    show();
  }
}
