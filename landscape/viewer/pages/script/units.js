// Distances in the unit that was chosen.

function unitOf(picture, key = state.units) {
  return picture.units.find((unit) => unit.key === key) ?? picture.units[0];
}

// Digits after the point that a coordinate is worth in this unit.
function decimalsIn(picture, unit) {
  return Math.max(0, Math.round(picture.decimals + Math.log10(unit.length)));
}

function placeWords(picture, unit, a, b) {
  const form = fixed(decimalsIn(picture, unit));
  const alpha = `α = ${spoken(a / unit.length, form)}`;
  return picture.isLine ? alpha : `${alpha}, β = ${spoken(b / unit.length, form)}`;
}
