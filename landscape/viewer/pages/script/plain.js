// What plain.py wrote: arrays in base64, numbers that are not finite by their names.

function bytes(packed) {
  const letters = atob(packed.u1 ?? packed.f8), found = new Uint8Array(letters.length);
  for (let k = 0; k < letters.length; k++) found[k] = letters.charCodeAt(k);
  return found;
}

// Little-endian, as is every machine that has a browser.
function floats(packed) {
  return new Float64Array(bytes(packed).buffer);
}

// JSON of a script element, with every packed array and every named number unpacked.
function unpacked(value) {
  if (typeof value === "string") return ["NaN", "Infinity", "-Infinity"].includes(value) ? Number(value) : value;
  if (Array.isArray(value)) return value.map(unpacked);
  if (value === null || typeof value !== "object") return value;
  if (typeof value.f8 === "string") return floats(value);
  if (typeof value.u1 === "string") return bytes(value);
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, unpacked(each)]));
}

function pageData() {
  return unpacked(JSON.parse(document.getElementById("data").textContent));
}
