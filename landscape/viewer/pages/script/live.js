// A page that is served asks every second or so whether there is a newer one of it, and shows that. The address keeps what
// the reader chose; where they were on the page is kept here.

const PLACE = `place ${location.pathname}`;

async function followNewer() {
  if (!location.protocol.startsWith("http")) return; // opened from a disk later, it stays as it is
  goBack();
  const pace = Math.min(4000, Math.max(1000, 2 * performance.now())); // a page that takes long to draw is not drawn all the time
  let held = false, renewing = false, known = null;
  addEventListener("pointerdown", () => (held = true));
  for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => (held = false));
  addEventListener("pagehide", () => renewing && remember()); // the last moment: until the next page is there, one reads on
  while (!renewing) {
    const version = await versionNow();
    if (version && !known) known = version.seconds === Math.floor(Date.parse(document.lastModified) / 1000) ? version : {};
    await new Promise((resolve) => setTimeout(resolve, pace));
    renewing = !held && version !== null && version.tag !== known.tag;
  }
  location.reload();
}

// Of the page as it lies there now; null while nobody serves it.
async function versionNow() {
  try {
    const answer = await fetch(location.pathname, {method: "HEAD", cache: "no-store"});
    if (!answer.ok) return null;
    const {headers} = answer;
    return {tag: headers.get("etag"), seconds: Math.floor(Date.parse(headers.get("last-modified")) / 1000)};
  } catch {
    return null;
  }
}

function remember() {
  const here = document.activeElement, choice = here?.dataset.choice;
  const open = [...document.querySelectorAll("details")].map((each) => each.open);
  sessionStorage.setItem(PLACE, JSON.stringify({x: scrollX, y: scrollY, open, choice, caret: here?.selectionStart}));
}

function goBack() {
  const kept = JSON.parse(sessionStorage.getItem(PLACE) ?? "null");
  sessionStorage.removeItem(PLACE);
  if (!kept) return;
  document.querySelectorAll("details").forEach((each, k) => (each.open = kept.open[k] ?? each.open));
  const input = kept.choice && document.querySelector(`[data-choice="${CSS.escape(kept.choice)}"]`);
  if (input) {
    input.focus({preventScroll: true});
    if (input.type === "search" && Number.isInteger(kept.caret)) input.setSelectionRange(kept.caret, kept.caret);
  }
  scrollTo(kept.x, kept.y);
}
