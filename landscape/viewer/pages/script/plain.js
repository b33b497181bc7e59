// What plain.py wrote: arrays in base64, numbers that are not finite by their names.

function bytes(packed) {
  return Uint8Array.from(atob(packed.u1 ?? packed.f8), (letter) => letter.charCodeAt(0));
}

function floats(packed) {
  const view = new DataView(bytes(packed).buffer); // little-endian whatever the machine is
  return Float64Array.from({length: view.byteLength / 8}, (_, k) => view.getFloat64(8 * k, true));
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
