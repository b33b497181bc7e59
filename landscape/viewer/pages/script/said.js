// What a hover box or a readout says of a place, HTML as plotly reads it. Labels come escaped from Python.

const LOSS_UNIT = "nats per token";

function lossForms(picture, kind) {
  if (kind === EVALUATED || !(picture.error > 0)) return [significant(7), signed(short(4))];
  const digits = picture.errorDigits;
  return [fixed(digits), signed(fixed(digits))];
}

function kindWords(picture, kind) {
  return kind === EVALUATED ? "evaluated" : `reconstructed, error ≤ ${picture.errorWords}`;
}

function changeWords(picture, loss, form) {
  const {label, loss: origin} = picture.origin;
  if (state.measure !== "relative") return `${spoken(loss - origin, form)} against ${label}`;
  return `${spoken(100 * (loss / origin - 1), signed(short(3)))} % against ${label}`;
}

function cellWords(picture, unit, i, j) {
  const loss = picture.loss(i, j), kind = picture.kind(i, j);
  const place = placeWords(picture, unit, picture.alpha[i], picture.beta[j]);
  if (kind === NONE) return `${place}<br>no loss yet`;
  if (!Number.isFinite(loss)) return `${place}<br><b>loss ${spoken(loss)}</b> ${LOSS_UNIT}`;
  const [form, change] = lossForms(picture, kind);
  return (
    `${place}<br><b>loss ${spoken(loss, form)}</b> ${LOSS_UNIT}<br>${kindWords(picture, kind)}<br>` +
    changeWords(picture, loss, change)
  );
}

function pointWords(picture, unit, point) {
  const change = point.change === null ? "" : `<br>${changeWords(picture, point.loss, signed(short(4)))}`;
  let off = "";
  if (point.below !== null) {
    off = `<br>${spoken(point.residual / unit.length)} off the plane`;
    if (picture.colours) off += `, where the loss is ${spoken(point.below, significant(5))}`;
  }
  return (
    `<b>${point.label}</b>, ${placeWords(picture, unit, point.alpha, point.beta)}` +
    `<br><b>loss ${spoken(point.loss, significant(7))}</b> ${LOSS_UNIT}, evaluated${change}${off}`
  );
}
