// Correlations with 95 % intervals, as statistics/correlation.py and resampling.py have them.

const DRAWS = 2000, LEAST_ROWS = 4, SHORT_RUN = 4, SEVERAL_RUNS = 5;

// Numbers from 0 to 1 that are the same on every visit (mulberry32).
function seeded(seed) {
  let at = seed >>> 0;
  return () => {
    at = (at + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(at ^ (at >>> 15), at | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// Places of each run's rows, in order of first appearance.
function placesByRun(names) {
  const found = new Map();
  names.forEach((name, place) => found.set(name, [...(found.get(name) ?? []), place]));
  return [...found.values()];
}

const blockLength = (rows, runs) => Math.max(1, Math.ceil(rows ** (1 / 3)), runs >= SEVERAL_RUNS ? Math.min(rows, SHORT_RUN) : 0);

function blockCount(names) {
  const runs = placesByRun(names);
  return runs.reduce((sum, own) => sum + Math.ceil(own.length / blockLength(own.length, runs.length)), 0);
}

// Rows drawn again: whole blocks of neighbours, each from within one run, blocks of all runs alike.
function resampling(names, seed) {
  const random = seeded(seed), count = names.length, runs = placesByRun(names);
  const following = new Int32Array(count), length = new Int32Array(count);
  for (const own of runs) {
    own.forEach((place, k) => {
      following[place] = own[(k + 1) % own.length];
      length[place] = Math.min(own.length, blockLength(own.length, runs.length));
    });
  }
  return (rows) => {
    for (let k = 0; k < count;) {
      let place = Math.floor(random() * count);
      for (let left = length[place]; left > 0 && k < count; left--, k++) {
        rows[k] = place;
        place = following[place];
      }
    }
  };
}

// Pairs that are compared: without those that are not finite, and changes within each run where `differenced`.
function comparedPairs(x, y, names, differenced) {
  const found = {x: [], y: [], names: []};
  for (const own of placesByRun(names)) {
    const there = own.filter((place) => Number.isFinite(x[place]) && Number.isFinite(y[place]));
    there.slice(differenced ? 1 : 0).forEach((place, k) => {
      found.x.push(differenced ? x[place] - x[there[k]] : x[place]);
      found.y.push(differenced ? y[place] - y[there[k]] : y[place]);
      found.names.push(names[place]);
    });
  }
  return found;
}

function pearson(x, y, rows) {
  const count = rows.length;
  let meanX = 0, meanY = 0;
  for (let k = 0; k < count; k++) {
    meanX += x[rows[k]] / count;
    meanY += y[rows[k]] / count;
  }
  let xx = 0, xy = 0, yy = 0;
  for (let k = 0; k < count; k++) {
    const a = x[rows[k]] - meanX, b = y[rows[k]] - meanY;
    xx += a * a;
    xy += a * b;
    yy += b * b;
  }
  return xy / Math.sqrt(xx * yy);
}

// For every value which one it is in ascending order, equal ones alike; and how many different ones there are.
function orderOf(values) {
  const sorted = [...new Set(values)].sort((a, b) => a - b), at = new Map(sorted.map((value, k) => [value, k]));
  return {places: Int32Array.from(values, (value) => at.get(value)), different: sorted.length};
}

// Ranks of the rows drawn, equal ones sharing the mean of theirs; counted, since a draw only repeats known values.
function ranked({places, different}, rows, into) {
  const count = new Float64Array(different);
  for (const row of rows) count[places[row]] += 1;
  let before = 0;
  for (let k = 0; k < different; k++) {
    const own = count[k];
    count[k] = before + (own + 1) / 2;
    before += own;
  }
  for (let k = 0; k < rows.length; k++) into[k] = count[places[rows[k]]];
}

// {pearson, spearman}, each {value, low, high}, and how many rows went in; or `why` there is none.
function correlated(x, y, names, {differenced = false, quantiles, draws = DRAWS, seed = 0} = {}) {
  const table = comparedPairs(x, y, names, differenced), count = table.x.length;
  if (count < LEAST_ROWS) return {rows: count, why: `${count} rows that can be compared; at least ${LEAST_ROWS} are needed`};
  for (const name of ["x", "y"]) {
    if (table[name].every((value) => value === table[name][0])) return {rows: count, why: "a column is the same in all rows"};
  }
  const again = resampling(table.names, seed), rows = Int32Array.from({length: count}, (_, k) => k);
  const whole = rows.slice(), orders = [orderOf(table.x), orderOf(table.y)];
  const ranks = [new Float64Array(count), new Float64Array(count)];
  const spearman = () => {
    orders.forEach((order, k) => ranked(order, rows, ranks[k]));
    return pearson(ranks[0], ranks[1], whole);
  };
  const values = {pearson: pearson(table.x, table.y, rows), spearman: spearman()}, drawn = {pearson: [], spearman: []};
  for (let draw = 0; draw < draws; draw++) {
    again(rows);
    drawn.pearson.push(pearson(table.x, table.y, rows));
    drawn.spearman.push(spearman());
  }
  const quantile = quantiles[Math.min(quantiles.length, Math.max(1, blockCount(table.names) - 1)) - 1];
  const nearestTo1 = {pearson: 1 - 1e-6, spearman: 1 - 12 / (count ** 3 - count)};
  const found = {rows: count};
  for (const kind of ["pearson", "spearman"]) found[kind] = withInterval(values[kind], drawn[kind], nearestTo1[kind], quantile);
  return found;
}

// atanh(r) ± t·s, taken back by tanh; s is the standard deviation over the draws.
function withInterval(value, drawn, limit, quantile) {
  const clip = (each) => Math.atanh(Math.max(-limit, Math.min(limit, each)));
  const z = drawn.filter(Number.isFinite).map(clip), mean = z.reduce((sum, each) => sum + each, 0) / z.length;
  const spread = Math.sqrt(z.reduce((sum, each) => sum + (each - mean) ** 2, 0) / (z.length - 1));
  const reach = z.length > 1 ? quantile * spread : NaN, centre = clip(value);
  return {value, low: Math.min(value, Math.tanh(centre - reach)), high: Math.max(value, Math.tanh(centre + reach))};
}
