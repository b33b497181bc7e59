// Numbers in words, as described/words.py has them: a true minus, and names for what is not finite.

const fixed = (digits) => (value) => value.toFixed(digits);
const significant = (digits) => (value) => value.toPrecision(digits);
const short = (digits) => (value) => String(Number(value.toPrecision(digits)));
const signed = (form) => (value) => (value < 0 ? "" : "+") + form(value);

function spoken(value, form = short(4)) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+∞" : "−∞";
  const text = form(value);
  return (/[1-9]/.test(text) ? text : text.replace("-", "")).replace(/-/g, "−"); // rounded away, and its sign with it
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10, 20].find((factor) => factor * power >= rough * (1 - 1e-9)) * power;
}

function multiples(step, low, high) {
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({length: Math.max(0, last - first + 1)}, (_, k) => (first + k) * step);
}

// Digits after the point that tell the multiples of a step apart.
function digitsOf(step) {
  for (let digits = 0; digits < 20; digits++) if (Math.abs(Number(step.toFixed(digits)) / step - 1) < 1e-6) return digits;
  return 20;
}

// Plain text as HTML, for plotly's labels and hover boxes.
function escaped(text) {
  return String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
