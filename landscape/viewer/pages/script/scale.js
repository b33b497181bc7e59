// How losses become heights and colours: which measure, linear or logarithmic, from where to where.

const MEASURES = {
  loss: {of: (loss) => loss, base: (origin, lowest) => lowest},
  change: {of: (loss, origin) => loss - origin.loss, base: () => 0},
  relative: {of: (loss, origin) => 100 * (loss / origin.loss - 1), base: () => 0},
};

// One scale for all `pictures`. In its own units: `value` of a loss, `shown` as a height or colour, `low` and `high`.
function scaleOf(pictures) {
  const measure = MEASURES[state.measure], log = state.scale === "log";
  const value = (picture, loss) => measure.of(loss, picture.origin);
  const least = Math.min(...pictures.map((each) => value(each, each.lowest)));
  const most = Math.max(...pictures.map((each) => value(each, each.highest)));
  const coloured = pictures.filter((each) => each.colours);
  const ends = [
    Math.min(...coloured.map((each) => value(each, each.colours.low))),
    Math.max(...coloured.map((each) => value(each, each.colours.high))),
  ];
  const low = state.low && state.low[0] < ends[1] ? state.low[0] : ends[0];
  const high = state.high && state.high[0] > low ? state.high[0] : ends[1];
  const base = Math.min(...pictures.map((each) => measure.base(each.origin, each.lowest)));
  const floor = Math.max(low - base, 1e-3 * (high - base));
  const raise = (number) => (log ? Math.log10(Math.max(number - base, floor)) : number);
  const made = {
    log, low, high, least, most, value, floor, base,
    shown: (picture, loss) => raise(value(picture, loss)),
    bottom: log ? Math.log10(floor) : low,
    top: raise(high),
    ...titleOf(pictures, log),
  };
  return {...made, ...linesOf(made)};
}

function titleOf(pictures, log) {
  const one = pictures.length === 1 ? pictures[0].origin.label : "the own Θ<sub>K</sub>";
  if (state.measure === "loss") return {title: log ? "loss above the lowest (nats per token)" : "loss (nats per token)"};
  if (state.measure === "change") return {title: `loss above that of ${one} (nats per token)`};
  return {title: `loss above that of ${one} (%)`};
}

// Where lines of equal loss are drawn and where the colour bar has its ticks.
function linesOf(scale) {
  const span = scale.top - scale.bottom;
  if (!scale.log) {
    const step = niceStep(span / 14), apart = niceStep(span / 7), lines = multiples(step, scale.bottom, scale.top);
    const ticks = multiples(apart, scale.bottom, scale.top);
    return {step, lines, ticks, tickWords: ticks.map((tick) => spoken(tick, fixed(digitsOf(apart))))};
  }
  const powers = [];
  for (let power = Math.floor(scale.bottom); power <= Math.ceil(scale.top); power++) {
    for (const factor of span < 2 ? [1, 2, 5] : [1]) powers.push(factor * 10 ** power);
  }
  const marks = powers.filter((each) => Math.log10(each) >= scale.bottom - 1e-9 && Math.log10(each) <= scale.top + 1e-9);
  const step = span / 14;
  return {
    step,
    lines: multiples(step, scale.bottom, scale.top),
    ticks: marks.map(Math.log10),
    tickWords: marks.map((mark) => spoken(mark, short(3))),
  };
}

// The two sliders: positions from 0 to 1000, finer near the lowest loss.
const CURVED = 3;

function bindRange(current, names = ["low", "high"]) {
  const show = () => {
    const scale = current();
    for (const name of names) {
      const slider = document.querySelector(`[data-end="${name}"]`);
      if (!slider) return;
      const share = (scale[name] - scale.least) / (scale.most - scale.least);
      slider.value = Math.round(1000 * Math.max(0, Math.min(1, share)) ** (1 / CURVED));
      const words = spoken(scale[name], short(4)) + (state.measure === "relative" ? " %" : "");
      slider.setAttribute("aria-valuetext", words);
      slider.nextElementSibling.textContent = words;
    }
  };
  for (const name of names) {
    const slider = document.querySelector(`[data-end="${name}"]`);
    slider?.addEventListener("input", () => {
      const scale = current();
      const value = scale.least + (scale.most - scale.least) * (slider.value / 1000) ** CURVED;
      const room = 1e-3 * (scale.most - scale.least);
      choose({[name]: [name === "low" ? Math.min(value, scale.high - room) : Math.max(value, scale.low + room)]});
    });
  }
  watch((changed) => {
    if (changed.has("measure")) choose({low: null, high: null});
    if (["low", "high", "measure", "scale"].some((name) => changed.has(name))) show();
  });
  show();
}

function declareScale(measure) {
  declare("measure", measure, (name) => Object.hasOwn(MEASURES, name));
  declare("scale", "linear", (name) => ["linear", "log"].includes(name));
  declare("low", null, finiteNumbers(1));
  declare("high", null, finiteNumbers(1));
}
