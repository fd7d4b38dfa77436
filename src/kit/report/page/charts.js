// Charts by plotly.js. A chart is {id, title, wide, ofOne, isWanted(), build(view)}; build() returns {data, layout,
// note}, or null if the view's runs have no data for it (if `ofOne`, the view's `detail` run). The page has a chart if
// isWanted(), or, without that function, if any run has data for it.

// Escapes text, because Plotly interprets some tags.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

const themeColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function themeLayout() {
  const colour = themeColour;
  const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"),
                 automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--ink"), family: "system-ui, DejaVu Sans, sans-serif", size: 12 },
    margin: { l: 56, r: 12, t: 30, b: 44 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--accent") },
    showlegend: false,
    hovermode: "closest",
    hoverlabel: { namelength: -1, bgcolor: colour("--card"), font: { color: colour("--ink") } },
    xaxis: { ...axis },
    yaxis: { ...axis },
  };
}

function merged(base, more) {
  const out = { ...base };
  for (const [key, value] of Object.entries(more))
    out[key] = value && typeof value === "object" && !Array.isArray(value) ? merged(base[key] || {}, value) : value;
  return out;
}

const TIME_UNITS = [[3600, "h"], [60, "min"], [1, "s"]];
function timeUnit(runs) {
  const longest = Math.max(0, ...runs.map((run) => run.seconds || 0));
  return TIME_UNITS.find(([size]) => longest >= 2 * size) || [1, "s"];
}

// The traces of one series for every shown run. scale(run) is the factor of its values; null if unknown.
function curves(view, key, { done = 1, scale = () => 1, markers = false, label = "" } = {}) {
  // Markers are slow, because each is an element.
  const data = [], left = [], many = view.runs.length > 30;
  const [unit] = view.axis === "time" ? timeUnit(view.runs) : [1];
  const groups = seedGroups(view.runs, key), pale = new Set(groups.flat());
  for (const run of [...view.runs, ...groups.map((group) => meanRun(group, key))]) {
    const curve = run.series[key];
    if (!curve) continue;
    const place = axisOf(run, view.axis, done), factor = scale(run);
    if (!place || factor === null) {
      left.push(run.name);
      continue;
    }
    // A gap separates the evaluation of the initial weights from the evaluations of trained weights.
    const cut = (points, all) => (markers && points.x[0] === 0 ? [all[0], null, ...all.slice(1)] : all);
    const at = (points) => cut(points, points.x.map((step) => place(step) / unit));
    const values = (points) => cut(points, points.y.map((y) => (known(y) ? y * factor : null)));
    const trace = (points, y, more) => merged({
      type: "scatter", mode: (markers && !many) || points.x.length === 1 ? "lines+markers" : "lines",
      x: at(points), y, customdata: cut(points, points.x), name: plain(run.name + label),
      opacity: pale.has(run) ? 0.35 : 1,
      line: { color: run.colour, width: markers || many ? 1 : 1.6,
              dash: markers ? "dot" : run.dash },
      marker: { size: 6, color: run.colour },
      hovertemplate: "%{y:.5~g} at step %{customdata}",
    }, more);
    if (view.smooth > 0 && !markers) {
      const base = curve.means || curve;
      if (view.runs.length <= 12)
        data.push(trace(curve, values(curve), { opacity: 0.25, line: { width: 1 }, hoverinfo: "skip",
                                                hovertemplate: null }));
      data.push(trace(base, smoothed(values(base), view.smooth), {}));
    } else {
      data.push(trace(curve, values(curve), {}));
    }
  }
  return { data, left };
}

// Groups of shown runs with this series that differ only in their seed.
const seedGroups = (runs, key) => [...new Set(runs.map((run) => run.seeds))]
  .map((seeds) => seeds.filter((run) => run.series[key] && runs.includes(run))).filter((group) => group.length > 1);
const meanRun = (group, key) => ({
  ...group[0], name: `mean of ${group.length} seeds: ${group[0].name}`,
  series: { [key]: meanCurve(group.map((run) => run.series[key].means || run.series[key])) },
});

// Marks the lowest held-out value of the shown runs.
function bestMark(view, key) {
  const best = bestOf(view.runs, key), place = best && axisOf(best.run, view.axis, 0);
  if (!place) return { data: [], left: [] };
  const [unit] = view.axis === "time" ? timeUnit(view.runs) : [1];
  return { left: [], data: [{
    type: "scatter", mode: "markers", x: [place(best.step) / unit], y: [best.y], name: "best",
    marker: { symbol: "star", size: 13, color: best.run.colour, line: { width: 1, color: themeColour("--ink") } },
    text: [plain(`best: ${best.run.name}, ${digits(best.y, 5)} at step ${best.step}`)],
    hovertemplate: "%{text}<extra></extra>",
  }] };
}

// The range of y from the lowest value to the highest after the first tenth of the curves, which would otherwise take
// up most of the height. Null for the whole range, as with log x, which spreads that tenth.
function rangeAfterStart(view, data) {
  if (view.logX) return null;
  let low = Infinity, high = -Infinity;
  for (const { x, y } of data) {
    const start = Math.max(...x) / 10;
    y.forEach((value, i) => {
      if (!known(value) || (view.logY && value <= 0)) return;
      low = Math.min(low, value);
      if (x[i] > start) high = Math.max(high, value);
    });
  }
  if (low >= high) return null;
  const [bottom, top] = view.logY ? [Math.log10(low), Math.log10(high)] : [low, high];
  return [bottom - (top - bottom) / 20, top + (top - bottom) / 20];
}

function axisTitle(view) {
  return view.axis === "time" ? `${AXES.time} (${timeUnit(view.runs)[1]})` : AXES[view.axis];
}

function leftOut(names) {
  const runs = [...new Set(names)];
  if (runs.length === 0) return "";
  const shown = runs.slice(0, 3).join(", ") + (runs.length > 3 ? ` and ${runs.length - 3} more` : "");
  return `Not drawn, as these runs lack the data for it: ${shown}`;
}

function curveChart(view, parts, title, more = {}) {
  const data = parts.flatMap((part) => part.data);
  const left = parts.flatMap((part) => part.left);
  if (data.length === 0 && left.length === 0) return null;
  const layout = {
    xaxis: { title: { text: axisTitle(view) }, type: view.logX ? "log" : "linear", exponentformat: "SI" },
    yaxis: { title: { text: title }, type: view.logY ? "log" : "linear" },
  };
  return { data, layout: merged(layout, more), note: leftOut(left) };
}

const seriesChart = (id, key, title, options = {}) => ({
  id, title, build: (view) => curveChart(view, [curves(view, key, options)], options.axis || title, options.layout),
});

// Training loss and held-out loss, with the lowest held-out value marked.
function lossChart(view, training, key, title) {
  const parts = [training, heldOut(view, key), bestMark(view, key)];
  const range = rangeAfterStart(view, parts.flatMap((part) => part.data));
  return curveChart(view, parts, title, range ? { yaxis: { range } } : {});
}
const heldOut = (view, key) => curves(view, key, { done: 0, markers: true, label: ", held-out" });

const LOSS = {
  id: "loss", title: "Loss: training as lines, held-out dotted", wide: true, isWanted: () => true,
  build: (view) => lossChart(view, curves(view, "loss"), "val_loss", "loss (nats per token)"),
};
const BITS = {
  id: "bits", title: "Bits per byte: training as lines, held-out dotted", wide: true,
  isWanted: () => runs.some((run) => bitsPerByte(run) !== null || run.series.val_bpb),
  build: (view) => lossChart(view, curves(view, "loss", { scale: bitsPerByte }), "val_bpb", "bits per byte"),
};

// Gradient norms; crosses are steps that were not committed, at the top if the norm was not finite.
const NORM = {
  id: "norm", title: "Gradient norm, and steps that were not committed",
  build: (view) => {
    const part = curves(view, "grad_norm");
    const [unit] = view.axis === "time" ? timeUnit(view.runs) : [1];
    for (const run of view.runs) {
      const place = axisOf(run, view.axis, 1);
      if (!place || run.skipped.named.length === 0) continue;
      const norms = run.series.grad_norm ? run.series.grad_norm.y.filter(known) : [];
      const top = norms.reduce((most, y) => Math.max(most, y), 0) || 1;
      part.data.push({
        type: "scatter", mode: "markers", name: plain(run.name) + ", skipped",
        x: run.skipped.named.map((skip) => place(skip.step) / unit),
        y: run.skipped.named.map((skip) => (known(skip.norm) ? skip.norm : top)),
        marker: { symbol: "x", size: 9, color: run.colour },
        text: run.skipped.named.map((skip) => plain(`step ${skip.step}: ${skip.why} ${skip.what}`)),
        hovertemplate: "%{text}",
      });
    }
    return curveChart(view, [part], "gradient norm");
  },
};

// For one run: RMS of each group's updates relative to its weights.
const UPDATES = {
  id: "updates-groups", title: "Update / weights, by group (RMS)", ofOne: true, wide: true,
  build: (view) => {
    const { detail } = view, place = axisOf(detail, view.axis, 1), groups = Object.entries(detail.updates || {});
    if (!place || groups.length === 0) return null;
    const [unit] = view.axis === "time" ? timeUnit([detail]) : [1];
    return {
      data: groups.map(([group, all]) => [group, view.smooth > 0 ? all.means || all : all]).map(([group, { x, y }], i) => ({
        type: "scatter", mode: x.length === 1 ? "markers" : "lines", name: plain(group),
        x: x.map((step) => place(step) / unit), customdata: x, y: view.smooth > 0 ? smoothed(y, view.smooth) : y,
        line: { color: PALETTE[i % PALETTE.length], width: 1.6 },
        hovertemplate: "%{y:.3~g} at step %{customdata}",
      })),
      layout: {
        showlegend: true, legend: { orientation: "h", y: -0.25, yanchor: "top" },
        xaxis: { title: { text: axisTitle({ ...view, runs: [detail] }) }, type: view.logX ? "log" : "linear" },
        yaxis: { title: { text: "ratio" }, type: "log", exponentformat: "power" },
      },
      note: "Change by one update, including learning rate and decay. Matrices, embeddings and lm_head are usually " +
            "between 10\u207b\u2075 and 0.1; a group above that changes too fast, one below it hardly learns.",
    };
  },
};

const RECORDED = "--norms-every sets how often it is recorded; metrics.jsonl has every matrix.";
// For one run: the same for the matrices of each layer, with the first layer at the bottom.
const LAYERS = {
  id: "updates-layers", title: "Update / weights of the matrices, by layer", ofOne: true, wide: true,
  build: ({ detail }) => {
    const { x, rows } = detail.layers || { rows: [] };
    if (rows.length === 0) return null;
    const log = rows.map((row) => row.map((ratio) => (known(ratio) && ratio > 0 ? Math.log10(ratio) : null)));
    const all = log.flat().filter(known), low = Math.min(...all), high = Math.max(...all);
    const ticks = roundTicks(10 ** low, 10 ** high);
    if (x.length === 1)
      return {
        data: [{ type: "bar", x: rows.map((_, layer) => layer), y: rows.map(([ratio]) => ratio),
                 marker: { color: detail.colour }, hovertemplate: "layer %{x}: %{y:.3~g}<extra></extra>" }],
        layout: { xaxis: { title: { text: "layer" }, dtick: rows.length > 16 ? undefined : 1 },
                  yaxis: { title: { text: "ratio" }, rangemode: "tozero" } },
        note: `Recorded once, at step ${x[0]}. ${RECORDED}`,
      };
    return {
      data: [{
        type: "heatmap", x: x.map(String), y: rows.map((_, layer) => layer), z: log, customdata: rows, colorscale: "Viridis",
        colorbar: { thickness: 12, tickmode: "array", tickvals: ticks.map(Math.log10), ticktext: ticks.map(String) },
        hovertemplate: "layer %{y}, step %{x}: %{customdata:.3~g}<extra></extra>",
      }],
      layout: {
        xaxis: { title: { text: "step" }, type: "category", nticks: 12 },
        yaxis: { title: { text: "layer" }, dtick: rows.length > 16 ? undefined : 1 },
      },
      note: RECORDED,
    };
  },
};

// For one run: a histogram of step times, with ticks for outliers.
const TIMES = {
  id: "times", title: "Step times", ofOne: true,
  build: ({ detail }) => {
    const times = detail.times;
    if (!times) return null;
    const middle = times.counts.map((_, i) => (times.edges[i] + times.edges[i + 1]) / 2);
    const ticks = roundTicks(times.edges[0], times.edges[times.edges.length - 1]);
    const width = times.counts.map((_, i) => times.edges[i + 1] - times.edges[i]);
    return {
      data: [
        { type: "bar", x: middle, y: times.counts, width: width[0] > 0 ? width : undefined, name: plain(detail.name),
          customdata: times.counts.map((_, i) => [times.edges[i], times.edges[i + 1]]),
          marker: { color: detail.colour },
          hovertemplate: "%{y} steps of %{customdata[0]:.4~g} to %{customdata[1]:.4~g} ms<extra></extra>" },
        { type: "scatter", mode: "markers", x: times.slow.map(([, ms]) => ms), y: times.slow.map(() => 0.7),
          marker: { symbol: "line-ns", size: 12, line: { width: 2, color: themeColour("--ink") } },
          text: times.slow.map(([step, ms]) => `step ${step}: ${digits(ms, 4)} ms`), hovertemplate: "%{text}<extra></extra>" },
      ],
      layout: {
        bargap: 0,
        xaxis: { title: { text: "ms" }, type: "log", tickmode: "array", tickvals: ticks,
                 ticktext: ticks.map(String) },
        yaxis: { title: { text: "steps" }, type: "log", dtick: 1,
                 range: [Math.log10(0.5), Math.log10(2 * Math.max(...times.counts))] },
      },
      note: `Median ${digits(times.median, 4)} ms, 90 % within ${digits(times.p90, 4)} ms, 99 % within ` +
            `${digits(times.p99, 4)} ms; ticks below are slow steps; both axes are logarithmic`,
    };
  },
};

// Memory allocated on a device, with a bar for each run: categories that last from step to step, and the rest, whose
// tensors share memory if they are never in use together. The hover text has the bytes of each category without
// sharing.
const LASTING = ["weights", "masters", "momentum", "adam state"];
const MAX_BARS = 20;
const MEMORY = {
  id: "memory", title: "Memory allocated on a device",
  build: (view) => {
    const runs = view.runs.filter((run) => run.facts && known(run.facts.memory_bytes_per_device));
    if (runs.length === 0) return null;
    const shown = runs.slice(0, MAX_BARS).reverse();
    const lasting = LASTING.map((name) => [name, ({ facts }) => (facts.memory_bytes_by_category || {})[name] || 0]);
    const rest = (run) => lasting.reduce((left, [, part]) => Math.max(0, left - part(run)), run.facts.memory_bytes_per_device);
    const categories = ({ facts }) => Object.entries(facts.memory_bytes_by_category || {}).filter(([, bytes]) => bytes > 0)
      .map(([name, bytes]) => `${plain(name)}: ${bytesText(bytes)}`).join("<br>");
    const parts = [...lasting.filter(([, part]) => shown.some(part)), ["gradients, activations and scratch", rest]];
    return {
      data: parts.map(([name, part], i) => ({
        type: "bar", orientation: "h", name, marker: { color: PALETTE[i] },
        y: shown.map((run) => run.index), x: shown.map((run) => part(run) / 2 ** 20), customdata: shown.map(categories),
        hovertemplate: "%{x:.4~g} MiB<br><br>by category, before sharing:<br>%{customdata}",
      })),
      layout: {
        barmode: "stack", showlegend: true, legend: { orientation: "h", y: -70 / (120 + 22 * shown.length), yanchor: "top" },
        height: 260 + 22 * shown.length,
        xaxis: { title: { text: "MiB" } },
        yaxis: { type: "category", tickmode: "array", tickvals: shown.map((run) => run.index),
                 ticktext: shown.map((run) => clipped(run.name)) },
      },
      note: runs.length > MAX_BARS ? `The first ${MAX_BARS} of ${runs.length} shown runs.` : "",
    };
  },
};
const clipped = (name) => plain(name.length > 22 ? name.slice(0, 21) + "\u2026" : name);

// For one run: each rank's share of the update.
const RANKS = {
  id: "ranks", title: "What each rank updates", ofOne: true,
  build: ({ detail }) => {
    const ranks = detail.facts && detail.facts.ranks;
    if (!Array.isArray(ranks) || ranks.length === 0) return null;
    const share = (key) => {
      const sum = ranks.reduce((total, rank) => total + rank[key], 0);
      return ranks.map((rank) => (sum > 0 ? 100 * rank[key] / sum : 0));
    };
    const bars = [["elements", "elements"], ["muon_flops", "Newton-Schulz FLOPs"], ["sent_bytes", "bytes sent"]]
      .filter(([key]) => ranks.some((rank) => rank[key] > 0));
    return {
      data: bars.map(([key, name], i) => ({
        type: "bar", name, x: ranks.map((_, rank) => rank), y: share(key), marker: { color: PALETTE[i] },
        customdata: ranks.map((rank) => short(rank[key])),
        hovertemplate: `rank %{x}: %{y:.1f} % (%{customdata})`,
      })),
      layout: {
        barmode: "group", showlegend: true, legend: { orientation: "h", y: -0.35, yanchor: "top" },
        xaxis: { title: { text: "rank" }, dtick: ranks.length > 16 ? undefined : 1 },
        yaxis: { title: { text: "% of all ranks" }, rangemode: "tozero" },
      },
      note: `${detail.facts.strategy}, balance ${fixed(detail.facts.balance, 3)} (1: no rank waits for another)`,
    };
  },
};
