// The page of a folder: which cards are seen, and in which order. Without this script all are, by name.

const ORDERS = {
  name: (a, b) => byName(a, b),
  error: (a, b) => byError(a, b, -1) || byName(a, b),
  least: (a, b) => byError(a, b, 1) || byName(a, b),
  date: (a, b) => ascending(b.dataset.made, a.dataset.made) || byName(a, b),
};

const ascending = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
const byName = (a, b) => ascending(a.dataset.name, b.dataset.name);

// Those without a quantization error come last either way.
function byError(a, b, sign) {
  const [one, other] = [a, b].map((card) => ("error" in card.dataset ? sign * card.dataset.error : Infinity));
  return ascending(one, other);
}

async function contentsPage() {
  const groups = [...document.querySelectorAll(".group")].map((node) => ({
    node,
    kind: node.dataset.kind,
    list: node.querySelector(".cards"),
    cards: [...node.querySelectorAll(".card")],
  }));
  const kinds = groups.map((group) => group.kind);
  declare("find", "");
  declare("kinds", kinds, (chosen) => chosen.every((kind) => kinds.includes(kind)));
  declare("sort", "name", (order) => Object.hasOwn(ORDERS, order));
  startTheme(() => {});
  const show = () => showCards(groups);
  bindControls();
  watch(show);
  show();
  document.querySelector("form.controls")?.addEventListener("submit", (event) => event.preventDefault());
  drawn("flat");
  drawn("all");
}

function showCards(groups) {
  const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  let seen = 0, all = 0;
  for (const {node, kind, list, cards} of groups) {
    for (const card of cards) card.hidden = !words.every((word) => card.dataset.words.includes(word));
    const found = cards.filter((card) => !card.hidden).length;
    node.hidden = !found || !state.kinds.includes(kind);
    seen += node.hidden ? 0 : found;
    all += cards.length;
    const ordered = [...cards].sort(ORDERS[state.sort]);
    if (ordered.some((card, k) => list.children[k] !== card)) list.append(...ordered);
  }
  document.getElementById("count").textContent =
    seen === all ? `All ${all} are shown.` : seen ? `${seen} of ${all} are shown.` : `None of ${all} fits; search for less.`;
}
