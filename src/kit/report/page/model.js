// The runs as written by the program (run_data() in html_report.cpp), and values derived from them, independent of the
// page.

// Each colour has a contrast of at least 3:1 with the cards of both themes.
const PALETTE = ["#2f6fd0", "#d9730d", "#2b9348", "#c8394f", "#8458d0", "#99662f", "#d14aa3", "#6b7785",
                 "#8f9a12", "#0f9bb3"];
const DASHES = ["solid", "dash", "dot", "dashdot"];

const withPlace = (run, index) => ({ ...run, index });

// Parses the runs; returns none if the text is null, because a server will send them later.
function loadRuns(text) {
  return withSeeds((JSON.parse(text) || []).map(withPlace));
}

// Groups runs that differ only in their seed: each run's `seeds` are the runs of its group, which share a colour.
function withSeeds(runs) {
  const groups = new Map();
  for (const run of runs) {
    const aside = new Set(["seed", "out", "resume", ...run.asides]);
    for (const name of ["data", "val-data"]) aside.delete(name);  // other files may hold other text
    const key = JSON.stringify([run.heldOut, Object.entries(run.options).filter(([name]) => !aside.has(name))]);
    groups.set(key, [...(groups.get(key) || []), run]);
  }
  for (const group of groups.values()) {
    const differ = new Set(group.map((run) => run.options.seed)).size === group.length;
    for (const run of group) {
      run.seeds = differ ? group : [run];
      run.colour = PALETTE[run.seeds[0].index % PALETTE.length];
      run.dash = DASHES[Math.floor(run.seeds[0].index / PALETTE.length) % DASHES.length];
    }
  }
  return runs;
}

const known = (value) => typeof value === "number" && Number.isFinite(value);

// Formats 1234567 as 1.23M.
function short(value, digits = 3) {
  if (!known(value)) return "\u2013";
  for (const [size, unit] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= size) return Number((value / size).toPrecision(digits)) + unit;
  return String(Number(value.toPrecision(digits)));
}
// Formats 1234.5 as 1235, for milliseconds, which keep their unit.
const digits = (value, count) => (known(value) ? String(Number(value.toPrecision(count))) : "\u2013");
const counted = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
const fixed = (value, digits) => (known(value) ? value.toFixed(digits) : "\u2013");
const whole = (value) => (known(value) ? String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f") : "\u2013");
function bytesText(value) {
  if (!known(value)) return "\u2013";
  for (const [power, unit] of [[40, "TiB"], [30, "GiB"], [20, "MiB"], [10, "KiB"]])
    if (value >= 2 ** power) return (value / 2 ** power).toPrecision(3) + " " + unit;
  return value + " B";
}
function durationText(seconds) {
  if (!known(seconds)) return "\u2013";
  if (seconds < 100) return Number(seconds.toPrecision(3)) + " s";
  if (seconds < 6000) return Math.round(seconds / 60) + " min";
  return (seconds / 3600).toFixed(1) + " h";
}

// Returns a run's clock or tokens at the end of step x, by linear interpolation; step -1 ends at 0.
function interpolate(curve, x) {
  const xs = curve.x, ys = curve.y;
  if (xs.length === 0) return null;
  if (x <= xs[0]) return ys[0] * (x + 1) / (xs[0] + 1);
  if (x >= xs[xs.length - 1]) return ys[ys.length - 1];
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  return ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / (xs[high] - xs[low]);
}

const AXES = {
  step: "step",
  tokens: "tokens",
  flops: "training FLOPs",
  time: "training time",
};

// Returns a function from a step of the run to the value on the axis; null if the run lacks the data for it. Train
// records belong to the end of their step (`done` 1), evaluations to its beginning (`done` 0).
function axisOf(run, axis, done) {
  if (axis === "step") return (step) => step;
  const curve = axis === "time" ? run.clock : run.tokens;
  if (curve.x.length === 0) return null;
  const place = (step) => interpolate(curve, step - 1 + done);
  if (axis !== "flops") return place;
  const flops = run.facts && run.facts.flops_per_token;
  return known(flops) ? (step) => place(step) * flops : null;
}

// Exponential moving average with decay `keep`, corrected for bias.
function smoothed(values, keep) {
  let mean = 0, weight = 0;
  return values.map((value) => {
    if (!known(value)) return null;
    weight = keep * weight + (1 - keep);
    mean += (1 - keep) / weight * (value - mean);
    return mean;
  });
}

// Peak learning rate of Muon's matrices; null if unknown, or if it changes with the batch.
function matrixRate(run) {
  const rate = run.facts && run.facts.learning_rates && run.facts.learning_rates.matrices;
  return known(rate) && !String(run.options["total-batch-size"]).includes("@") ? rate : null;
}

// Factor from nats per token to bits per byte of the training text; null if its bytes per token are unknown.
function bitsPerByte(run) {
  const bytes = run.facts && run.facts.bytes_per_token;
  return known(bytes) && bytes > 0 ? 1 / (Math.LN2 * bytes) : null;
}

// Round numbers from low to high: 1, 2 and 5 times powers of ten, or, in a small range, multiples of such a number.
function roundTicks(low, high) {
  const round = (at) => Number(at.toPrecision(12));
  if (low > 0 && high >= 20 * low) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; ++power)
      ticks.push(...[1, 2, 5].map((digit) => round(digit * 10 ** power)));
    return ticks.filter((at) => at >= low && at <= high);
  }
  if (!(high > low)) return [low];
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((size) => rough / power <= size * 1.5);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-12); ++at) ticks.push(round(at * step));
  return ticks;
}

const numeric = (texts) => texts.every((text) => text !== "" && Number.isFinite(Number(text)));

// Names of options whose values differ between runs, or that a run of another version lacks. The directory, and whether
// the run was resumed, count as part of the run's name.
const NO_DIFFERENCE = new Set(["out", "resume"]);
function differingOptions(runs) {
  const names = new Set(runs.flatMap((run) => Object.keys(run.options)));
  return [...names].filter((name) => !NO_DIFFERENCE.has(name) &&
    new Set(runs.map((run) => run.options[name])).size > 1);
}

// Identifies which runs share a value; for numbers that all differ, gives the order of the runs by value.
function patternOf(texts) {
  const places = new Map([...new Set(texts)].map((text, i) => [text, i]));
  if (places.size < texts.length || !numeric(texts)) return texts.map((text) => places.get(text)).join();
  const order = texts.map((_, i) => i).sort((a, b) => texts[a] - texts[b]);
  return "order " + (order[0] < order[order.length - 1] ? order : order.reverse()).join();
}

// One run for each point: runs with equal values of all compared options are one point.
function pointsOf(runs) {
  const options = comparedOptions(runs);
  return [...new Map(runs.map((run) => [JSON.stringify(options.map((name) => run.options[name])), run])).values()];
}

// The options by which runs are compared: those that differ, without the seed, which is chance, and without `asides`
// (run_data()).
function comparedOptions(runs) {
  const asides = new Set(["seed", ...runs.flatMap((run) => run.asides)]);
  return differingOptions(runs).filter((name) => !asides.has(name));
}
// Groups of options in which runs differ, those of comparedOptions() first. Options with equal values in each run form
// one group (--depth and --n-layer).
function optionsToShow(runs) {
  const alike = new Map();
  for (const name of new Set([...comparedOptions(runs), ...differingOptions(runs)])) {
    const values = JSON.stringify(runs.map((run) => run.options[name]));
    alike.set(values, [...(alike.get(values) || []), name]);
  }
  return [...alike.values()];
}
// Axes of comparison. Options that vary together are one axis, because their effects cannot be separated.
function axesOf(runs) {
  const together = new Map(), points = pointsOf(runs);
  for (const option of comparedOptions(runs)) {
    const pattern = patternOf(points.map((run) => String(run.options[option] ?? "")));
    together.set(pattern, [...(together.get(pattern) || []), option]);
  }
  return [...together.values()].map((options) => ({
    name: options.map((option) => "--" + option).join(", "),
    value: (run) => String(run.options[options[0]] ?? ""),  // determines the values of the others
    text: (run) => options.map((option) => run.options[option] ?? "\u2013").join(", "),
  }));
}

// Returns the most common value; of several equally common values, the largest.
function mostCommon(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
  const [value] = [...counts].sort((a, b) => b[1] - a[1] || b[0] - a[0])[0] || [0];
  return value;
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// Returns the runs with the most common held-out data, and runs of older versions, which did not record theirs.
function comparableRuns(runs) {
  const data = mostCommon(runs.map((run) => run.heldOut).filter(Boolean));
  return runs.filter((run) => !run.heldOut || run.heldOut === data);
}
function incomparableText(runs) {
  const data = [...new Set(runs.map((run) => run.heldOut).filter(Boolean))];
  if (data.length < 2) return "";
  const names = data.map((each) => `${each}: ${runs.filter((run) => run.heldOut === each).map((run) => run.name).join(", ")}`);
  return `Their held-out data differ, so their held-out values cannot be compared. ${names.join("; ")}.`;
}

// Returns the lowest held-out value of comparable runs, {run, step, y}, or null.
function bestOf(runs, key) {
  let best = null;
  for (const run of comparableRuns(runs.filter((each) => each.series[key])))
    run.series[key].y.forEach((y, i) => {
      if (known(y) && (best === null || y < best.y)) best = { run, step: run.series[key].x[i], y };
    });
  return best;
}

// Sorts runs by their lowest held-out value. Runs without one, or with other held-out data, come last.
function bestFirst(runs) {
  const key = runs.some((run) => run.series.val_bpb) ? "val_bpb" : "val_loss", same = comparableRuns(runs);
  const lowest = new Map(runs.map((run) =>
    [run, same.includes(run) && run.series[key] ? Math.min(...run.series[key].y.filter(known)) : Infinity]));
  return [...runs].sort((a, b) => (lowest.get(a) === lowest.get(b) ? a.index - b.index : lowest.get(a) - lowest.get(b)));
}

// Returns the mean of curves at the steps that they have in common.
function meanCurve(curves) {
  const values = curves.map((curve) => new Map(curve.x.map((x, i) => [x, curve.y[i]])));
  const x = curves[0].x.filter((step) => values.every((of) => known(of.get(step))));
  return { x, y: x.map((step) => mean(values.map((of) => of.get(step)))) };
}
