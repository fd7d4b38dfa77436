// Charts, for sweeps, of how results depend on the options in which runs differ.

const score = (run) => (known(run.valBpb) ? run.valBpb : run.valLoss);
const seedMean = ({ seeds, steps }) =>
  (seeds.length > 1 && seeds.every((run) => known(score(run)) && run.steps === steps) ? mean(seeds.map(score)) : null);
const scoreName = () => (runs.some((run) => known(run.valBpb)) ? "held-out bits/byte" : "held-out loss");

// A map from step to the run's held-out value.
function scoresOf(run) {
  const { x, y } = run.series[known(run.valBpb) ? "val_bpb" : "val_loss"] || { x: [run.steps], y: [score(run)] };
  return new Map(x.map((step, i) => [step, y[i]]).filter(([, value]) => known(value)));
}

// The shown runs that have the same held-out data, and their scores at one step: the last step that three quarters of
// them have reached. Thus a halved sweep is compared at a step that stopped trials have reached, too.
function comparable(view) {
  const scored = view.runs.filter((run) => known(score(run))), same = comparableRuns(scored);
  const scores = new Map(same.map((run) => [run, scoresOf(run)])), reached = new Map();
  for (const values of scores.values())
    for (const step of values.keys()) reached.set(step, (reached.get(step) || 0) + 1);
  const enough = Math.min(0.75 * same.length, Math.max(...reached.values()));
  const steps = Math.max(0, ...[...reached].filter(([, count]) => count >= enough).map(([step]) => step));
  return { steps, of: scored.length, others: scored.length - same.length,
           runs: same.filter((run) => scores.get(run).has(steps)), score: (run) => scores.get(run).get(steps) };
}

// Groups runs by the axis into at most `most` groups: of equal values, or, if there are more distinct numbers, of
// neighbouring values, in groups of about equal size. Returns {labels, of: the group of each run}, or null.
function grouped(list, axis, most) {
  const texts = list.map(axis.value);
  const distinct = [...new Set(texts)];
  const isNumber = numeric(distinct);
  distinct.sort(isNumber ? (a, b) => a - b : undefined);
  const label = (text) => axis.text(list[texts.indexOf(text)]);
  if (distinct.length <= most)
    return { labels: distinct.map(label), of: texts.map((text) => distinct.indexOf(text)) };
  if (!isNumber) return null;
  const group = (text) => Math.floor(distinct.indexOf(text) * most / distinct.length);
  const labels = Array.from({ length: most }, (_, i) => {
    const inside = distinct.filter((text) => group(text) === i);
    const [first, last] = [inside[0], inside[inside.length - 1]].map((text) => digits(Number(text), 3));
    return first === last ? first : `${first} \u2013 ${last}`;
  });
  return { labels, of: texts.map(group) };
}

// The share of the scores' variance that lies between groups of the axis's values (omega squared, which subtracts what
// random groups would explain). Null if it is not identifiable: if there are fewer than two runs per group, or so few
// runs that a mean and one number for each axis would fit them all.
function importance({ runs: list, score }, axis) {
  const groups = grouped(list, axis, Math.max(2, Math.min(5, Math.floor(list.length / 2))));
  if (!groups || groups.labels.length < 2 || list.length < 2 * groups.labels.length) return null;
  const axes = sweptAxes().length;
  if (pointsOf(list).length < axes + 1 || list.length < axes + 2) return null;
  const values = list.map(score);
  const all = mean(values);
  const total = values.reduce((sum, value) => sum + (value - all) ** 2, 0);
  let between = 0;
  groups.labels.forEach((_, i) => {
    const inside = values.filter((_, j) => groups.of[j] === i);
    if (inside.length > 0) between += inside.length * (mean(inside) - all) ** 2;
  });
  const within = (total - between) / (list.length - groups.labels.length);
  return total > 0 ? Math.max(0, (between - (groups.labels.length - 1) * within) / (total + within)) : null;
}

const sweptAxes = () => axesOf(runs);

const omittedNote = (count) => (count > 0 ? ` Omitted, as their held-out data differ: ${counted(count, "run")}.` : "");
const comparedNote = ({ runs: list, of, others, steps }) =>
  `Held-out values at step ${steps}, which ${list.length === of ? "all" : `${list.length} of the`} ${of} shown runs ` +
  `with held-out data have reached.${omittedNote(others)}`;

const MAX_TICKS = 6;  // largest number of values of an axis that each get a tick
const PARALLEL = {
  id: "parallel", title: "One line per run; drag along an axis to select", wide: true,
  build: (view) => {
    const scored = view.runs.filter((run) => known(score(run))), list = comparableRuns(scored);
    if (list.length < 2) return null;
    const axis = (label, texts) => {
      const values = texts.map(Number);
      if (!numeric(texts)) {
        const distinct = [...new Set(texts)].sort();
        return { label, values: texts.map((text) => distinct.indexOf(text)), range: [-0.2, distinct.length - 0.8],
                 tickvals: distinct.map((_, i) => i), ticktext: distinct.map(plain) };
      }
      const low = Math.min(...values), high = Math.max(...values), distinct = [...new Set(values)];
      const ticks = distinct.length <= MAX_TICKS ? distinct : roundTicks(low, high);
      const place = low > 0 && high >= 20 * low ? Math.log10 : (value) => value;
      return { label, values: values.map(place), tickvals: ticks.map(place), ticktext: ticks.map(String) };
    };
    const dimensions = sweptAxes().map((each) => axis(plain(each.name), list.map(each.value)));
    const scores = list.map(score), steps = list.map((run) => String(run.steps));
    if (new Set(steps).size > 1) dimensions.push(axis("steps", steps));
    const ticks = roundTicks(Math.min(...scores), Math.max(...scores));
    dimensions.push({ label: scoreName(), values: scores, tickvals: ticks, ticktext: ticks.map(String) });
    const narrow = window.innerWidth < 600;
    return {
      data: [{ type: "parcoords", dimensions, labelangle: narrow ? -45 : dimensions.length > 5 ? -20 : 0,
               line: { color: scores, colorscale: [[0, PALETTE[0]], [1, PALETTE[1]]], showscale: !narrow } }],
      layout: { margin: { l: 60, r: 50, t: narrow ? 110 : 60, b: 30 }, height: 420 },
      note: omittedNote(scored.length - list.length),
    };
  },
};

const IMPORTANCE = {
  id: "importance", title: "Variance explained by each option alone", isWanted: () => true,
  build: (view) => {
    const compared = comparable(view);
    const shares = sweptAxes().map((axis) => [axis.name, importance(compared, axis)]);
    const bars = shares.filter(([, share]) => share !== null).sort((a, b) => a[1] - b[1]);
    const few = shares.filter(([, share]) => share === null).map(([name]) => name);
    const fewText = few.length === 0 ? "" : ` Not identifiable, as these runs are too few: ${few.join("; ")}.`;
    if (bars.length === 0) return { data: [], note: comparedNote(compared) + fewText };
    return {
      data: [{ type: "bar", orientation: "h", y: bars.map(([name]) => plain(name)),
               x: bars.map(([, share]) => 100 * share),
               marker: { color: themeColour("--accent") }, hovertemplate: "%{x:.0f} %<extra></extra>" }],
      layout: { xaxis: { title: { text: "% of the variance" }, range: [0, 100] }, yaxis: { type: "category" },
                height: 160 + 28 * bars.length },
      note: comparedNote(compared) + " Interactions of options are not included." + fewText,
    };
  },
};

const HEAT = {
  id: "heat", title: "Mean over runs, by two options",
  isWanted: () => sweptAxes().length > 1 && HEAT.build({ ...view(), runs }) !== null,
  build: (view) => {
    const compared = comparable(view), axes = sweptAxes();
    const [across, up] = view.heat.map((name) => axes.find((axis) => axis.name === name) || axes[0]);
    const columns = grouped(compared.runs, across, 6), rows = grouped(compared.runs, up, 6);
    if (compared.runs.length < 2 || !columns || !rows) return null;
    const cells = rows.labels.map((_, row) => columns.labels.map((_, column) =>
      compared.runs.filter((_, i) => columns.of[i] === column && rows.of[i] === row).map(compared.score)));
    const z = cells.map((row) => row.map((some) => (some.length ? mean(some) : null)));
    return {
      data: [{ type: "heatmap", x: columns.labels.map(plain), y: rows.labels.map(plain), z,
               colorscale: "Viridis", reversescale: true,
               text: z.map((row) => row.map((at) => (known(at) ? fixed(at, 4) : ""))),
               texttemplate: "%{text}", customdata: cells.map((row) => row.map((some) => some.length)),
               hovertemplate: "%{z:.5f}, %{customdata} runs<extra></extra>" }],
      layout: { xaxis: { title: { text: plain(across.name) }, type: "category" },
                yaxis: { title: { text: plain(up.name) }, type: "category" } },
      note: comparedNote(compared),
    };
  },
};

function heatChoice() {
  const choice = (which, label) => element("label", {}, label, element("select", {
    id: `heat-${which}`, onchange: (event) => { state.heat[which] = event.target.value; redraw(); },
  }));
  return element("div", { class: "bar", id: "heat-choice" }, choice(0, "across"), choice(1, "up"));
}

function fillHeatChoice() {
  const names = sweptAxes().map((axis) => axis.name);
  document.getElementById("heat-choice").hidden = names.length < 2;
  state.heat = state.heat.map((name) => (names.includes(name) ? name : names[0]));  // a run may have split an axis
  for (const which of [0, 1]) {
    const select = document.getElementById(`heat-${which}`);
    fill(select, ...names.map((name) => element("option", { value: name }, name)));
    select.value = state.heat[which];
  }
}

const MIN_RUNS = 4;  // fewer runs do not show effects of options
function addOptions() {
  const axes = sweptAxes();
  if (document.getElementById("options")) return fillHeatChoice();
  if (axes.length === 0 || runs.filter((run) => known(score(run))).length < MIN_RUNS) return;
  const compared = comparable(view());
  const by = new Map(axes.map((axis) => [axis, importance(compared, axis) ?? -1]));
  const order = axes.sort((a, b) => by.get(b) - by.get(a)).map((axis) => axis.name);
  state.heat = [order[0], order[1] ?? order[0]];
  addCharts(section("options", "Options and results", "losses"), [PARALLEL, IMPORTANCE, HEAT], heatChoice());
  fillHeatChoice();
}
