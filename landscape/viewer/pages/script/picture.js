// A slice as the file holds it: cells, named points, and the reconstruction at any place, as slices/surface.py has it.

const NONE = 0, EVALUATED = 1, RECONSTRUCTED = 2; // what a cell's loss is

function openPicture(plain) {
  const {alpha, beta, losses, cells} = plain;
  const columns = beta.length;
  const whole = {alpha, beta, loss: losses};
  const picture = {
    ...plain,
    origin: plain.points[0],
    last: plain.points[plain.points.length - 1],
    ends: [alpha[0], alpha[alpha.length - 1], beta[0], beta[columns - 1]],
    loss: (i, j) => (cells[i * columns + j] === NONE ? NaN : losses[i * columns + j]),
    kind: (i, j) => cells[i * columns + j],
    at: (a, b) => valueOf(plain.surface ?? whole, a, b),
    inside: (a, b) => within(a, alpha) && (columns === 1 || within(b, beta)),
    cell: (a, b) => [nearest(alpha, a), nearest(beta, b)],
  };
  const finite = losses.filter((loss, k) => cells[k] !== NONE && Number.isFinite(loss));
  picture.lowest = finite.reduce((least, loss) => Math.min(least, loss), Infinity);
  picture.highest = finite.reduce((most, loss) => Math.max(most, loss), -Infinity);
  return picture;
}

const within = (at, line) => at >= line[0] - 1e-9 * Math.abs(line[0]) && at <= line[line.length - 1] * (1 + 1e-9);

function nearest(line, at) {
  let best = 0;
  line.forEach((each, k) => {
    if (Math.abs(each - at) < Math.abs(line[best] - at)) best = k;
  });
  return best;
}

function valueOf(surface, a, b) {
  if (surface.coefficients) return polynomial(surface, a, b);
  if (surface.loss) return bilinear(surface, a, b);
  const way = Math.min(1, Math.max(0, ((surface.axis ? b : a) - surface.start) / (surface.end - surface.start)));
  const share = way * way * (3 - 2 * way);
  const low = share < 1 ? (1 - share) * valueOf(surface.low, a, b) : 0;
  return low + (share > 0 ? share * valueOf(surface.high, a, b) : 0);
}

// Σ c_pq T_p(x) T_q(y), by Clenshaw's recurrence along β, then along α.
function polynomial({bounds, rows, columns, coefficients}, a, b) {
  const unit = (at, low, high) => (high > low ? (2 * at - low - high) / (high - low) : 0);
  const x = unit(a, bounds[0], bounds[1]), y = unit(b, bounds[2], bounds[3]);
  const clenshaw = (count, of, at) => {
    let [next, after] = [0, 0];
    for (let k = count - 1; k > 0; k--) [next, after] = [of(k) + 2 * at * next - after, next];
    return of(0) + at * next - after;
  };
  return clenshaw(rows, (p) => clenshaw(columns, (q) => coefficients[p * columns + q], y), x);
}

// Exact on the cells, bilinear between them; beyond them, those of the nearest.
function bilinear({alpha, beta, loss}, a, b) {
  const [i, s] = between(alpha, a), [j, t] = between(beta, b);
  const corners = [[i, j, (1 - s) * (1 - t)], [i + 1, j, s * (1 - t)], [i, j + 1, (1 - s) * t], [i + 1, j + 1, s * t]];
  let value = 0;
  for (const [row, column, weight] of corners) if (weight > 0) value += weight * loss[row * beta.length + column];
  return value;
}

function between(line, at) {
  if (line.length === 1) return [0, 0];
  let below = 0, above = line.length - 1;
  while (above - below > 1) {
    const middle = (below + above) >> 1;
    if (line[middle] <= at) below = middle;
    else above = middle;
  }
  return [below, Math.min(1, Math.max(0, (at - line[below]) / (line[below + 1] - line[below])))];
}
