// The page: sections, tables and controls. Texts of runs are inserted by textContent only.

const runs = loadRuns(document.getElementById("runs").textContent);
// Set if a server updates the page (live.js). If it `grows`, more runs may begin.
const live = document.getElementById("runs").textContent === "null" ? { grows: false } : null;
const several = () => runs.length > 1 || (live !== null && live.grows);
const state = {
  axis: "step", smooth: 0, logX: false, logY: false,
  shown: new Set(runs.map((run) => run.index)),
  detail: 0, sampleStep: null, filter: "", heat: [],
  sort: { column: null, descending: false },
};

// element("p", {class: "note"}, "text", child, ...)
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
}

// Replaces the children of `node`. An existing child of the same kind stays, with its focus, selection and scrolling,
// and gets the text and attributes of the new one; data-key identifies children.
function fill(node, ...children) {
  const kept = new Map([...node.children].filter((old) => old.dataset.key).map((old) => [old.dataset.key, old]));
  const keyOf = (child) => (child instanceof Element ? child.dataset.key : undefined);
  let at = node.firstChild;
  for (const child of children) {
    if (child === null || child === "") continue;
    const wanted = typeof child === "string" ? document.createTextNode(child) : child;
    const old = keyOf(wanted) ? kept.get(keyOf(wanted)) : at;
    if (!old || old.nodeName !== wanted.nodeName || keyOf(old) !== keyOf(wanted)) {
      node.insertBefore(wanted, at);
      continue;
    }
    if (old === at) at = at.nextSibling; else node.insertBefore(old, at);
    copyInto(old, wanted);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function copyInto(node, wanted) {
  if (!(node instanceof Element)) {
    if (node.data !== wanted.data) node.data = wanted.data;
    return;
  }
  for (const { name } of [...node.attributes])
    if (name !== "open" && !wanted.hasAttribute(name)) node.removeAttribute(name);  // a reader opens <details>
  for (const { name, value } of wanted.attributes)
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  if (node instanceof HTMLInputElement) node.checked = wanted.checked;
  fill(node, ...wanted.childNodes);
}

const shownRuns = () => runs.filter((run) => state.shown.has(run.index));
const view = () => ({ ...state, runs: shownRuns(), detail: runs[state.detail] });

// Adds a section at the end, or before another section.
function section(id, title, before = "") {
  const node = element("section", { id, "aria-labelledby": id + "-title" }, element("h2", { id: id + "-title" }, title));
  document.getElementById("main").insertBefore(node, document.getElementById(before));
  const links = document.getElementById("sections");
  links.insertBefore(element("a", { href: "#" + id }, title), links.querySelector(`[href="#${before}"]`));
  return node;
}

function runName(run) {
  const swatch = element("span", { class: "swatch" });
  swatch.style.background = run.colour;
  return element("span", { class: "run" }, swatch, element("span", { title: run.name }, run.name));
}

// Charts are drawn when they come into view, and again if something has changed since.

const figures = [];
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const figure = figures.find((candidate) => candidate.plot === entry.target);
    figure.seen = entry.isIntersecting;
    if (figure.seen) setTimeout(draw, 0, figure);
  }
}, { rootMargin: "200px" });

function newFigure(chart) {
  const plot = element("div", { class: "plot", role: "img", "aria-label": chart.title });
  const note = element("p", { class: "note" });
  const node = element("figure", { class: chart.wide ? "wide" : "" }, element("figcaption", {}, chart.title), plot, note);
  figures.push({ chart, node, plot, note, seen: false, stale: true });
  watcher.observe(plot);
  return node;
}

function draw(figure) {
  if (!figure.stale) return;
  figure.stale = false;
  const built = figure.chart.build(view());
  figure.note.textContent = built ? built.note || "" : "The shown runs recorded no data for this chart.";
  if (!built || built.data.length === 0) {
    Plotly.purge(figure.plot);
    figure.plot.style.minHeight = "0";
    return;
  }
  figure.plot.style.minHeight = "";
  const layout = merged(themeLayout(), { height: figure.plot.clientHeight, ...built.layout });
  if (document.documentElement.classList.contains("paper")) layout.width = figure.plot.clientWidth;
  // Keeps the reader's zoom when data arrive, until the axes change.
  if (live) layout.uirevision = [state.axis, state.logX, state.logY].join();
  Plotly.react(figure.plot, built.data, layout,
               { responsive: true, displaylogo: false, displayModeBar: window.innerWidth < 520 ? false : "hover",
                 modeBarButtonsToRemove: ["select2d", "lasso2d"] });
}

function redraw() {
  for (const figure of figures) {
    figure.stale = true;
    if (figure.seen) setTimeout(draw, 0, figure);
  }
}

// The table of runs: held-out values, the options in which they differ, other results.

const RESULTS = [
  ["steps", (run) => run.steps, whole],
  ["loss", (run) => run.loss, (value) => fixed(value, 4)],
  ["held-out loss", (run) => run.valLoss, (value) => fixed(value, 4)],
  ["held-out bits/byte", (run) => run.valBpb, (value) => fixed(value, 4)],
  ["mean of seeds", seedMean, (value) => fixed(value, 4)],
  ["tokens/s", (run) => run.tokensPerS, short],
  ["MFU %", (run) => (known(run.mfu) ? 100 * run.mfu : null), (value) => fixed(value, 1)],
  ["time", (run) => run.seconds, durationText],
  ["skipped", (run) => run.skipped.count, whole],
  ["alarms", (run) => run.alarms.count, whole],
  ["clipped", (run) => run.clipped, whole],
  ["parameters", (run) => run.facts && run.facts.parameters, short],
];

function columns() {
  const optional = new Set(["skipped", "alarms", "clipped", "parameters", "MFU %", "held-out loss", "held-out bits/byte",
                            "mean of seeds"]);
  const results = RESULTS.filter(([name, value]) => !optional.has(name) || runs.some((run) => value(run)));
  const options = optionsToShow(runs).map((names) =>
    [names.map((name) => "--" + name).join(", "), (run) => run.options[names[0]], null]);
  const isHeldOut = ([name]) => name.startsWith("held-out");
  return [["run", (run) => run.name, null], ...results.filter(isHeldOut), ...options,
          ...results.filter((column) => !isHeldOut(column))];
}

function ordered(table) {
  const { column, descending } = state.sort;
  const found = table.find(([name]) => name === column);
  if (!found) return live ? runs : bestFirst(runs);
  const numeric = (value) => (known(value) ? value : value === "" || value === undefined || value === null ? NaN : Number(value));
  const order = (a, b) => {
    const [left, right] = [found[1](a), found[1](b)];
    const [x, y] = [numeric(left), numeric(right)];
    if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return String(left ?? "").localeCompare(String(right ?? ""));
  };
  const sorted = [...runs].sort(order);
  return descending ? sorted.reverse() : sorted;
}

function matches(run) {
  const text = run.name + " " + Object.entries(run.options).map(([name, value]) => `${name}=${value}`).join(" ");
  return state.filter.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));
}

function runRow(run, table, best) {
  const box = element("input", {
    type: "checkbox", checked: state.shown.has(run.index), "aria-label": "draw " + run.name,
    onchange: (event) => {
      if (event.target.checked) state.shown.add(run.index); else state.shown.delete(run.index);
      redraw();
      fillSamples();
    },
  });
  const mark = run === best ? element("strong", {}, " \u2605 best") : "";
  const first = element("td", {}, element("label", { class: "run" }, box, runName(run), mark));
  return element("tr", { "data-key": run.index }, first, ...table.slice(1).map(([, value, show]) => {
    if (show) return element("td", {}, show(value(run)));
    const text = value(run) ?? "\u2013";
    return element("td", { class: "text", title: text }, text);
  }));
}

function sortBy(name) {
  state.sort = { column: name, descending: state.sort.column === name && !state.sort.descending };
  fillRuns();
}

function fillRuns() {
  const table = columns();
  const head = table.map(([name, , show]) => {
    const sorted = state.sort.column === name ? (state.sort.descending ? "descending" : "ascending") : "none";
    return element("th", { "data-key": name, scope: "col", "aria-sort": sorted, class: show ? "" : "text" },
                   element("button", { type: "button", onclick: () => sortBy(name) }, name));
  });
  const best = several() && bestOf(runs, runs.some((run) => known(run.valBpb)) ? "val_bpb" : "val_loss");
  const rows = ordered(table).filter(matches).map((run) => runRow(run, table, best && best.run));
  fill(document.getElementById("runs-table"),
       element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

function fillNotes() {
  const differ = runs.length > 1 ? differingOptions(runs).length : 1;
  const text = differ === 0 ? "Their options are the same."
    : sweptAxes().length > 0 && runs.length < MIN_RUNS ? "Too few runs to show the effect of an option." : "";
  fill(document.getElementById("notes"), text && element("p", { class: "note" }, text),
       incomparableText(runs) && element("p", { class: "warning" }, incomparableText(runs)),
       ...runs.flatMap((run) => run.notes.map((note) => element("p", { class: "warning" }, `${run.name}: ${note}`))));
}

function show(chosen) {
  state.shown = new Set(runs.filter(chosen).map((run) => run.index));
  fillRuns();
  redraw();
  fillSamples();
}

function addRuns() {
  const node = section("overview", several() ? "Runs and how they differ" : "Run");
  if (several()) {
    const button = (text, chosen) => element("button", { type: "button", onclick: () => show(chosen) }, text);
    node.append(element("div", { class: "bar" },
      element("label", {}, "filter", element("input", {
        type: "search", placeholder: "name or option=value",
        oninput: (event) => { state.filter = event.target.value.trim(); fillRuns(); },
      })),
      button("draw all", () => true), button("draw none", () => false), button("draw listed", matches)));
  }
  node.append(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table of runs" },
                      element("table", { id: "runs-table" })), element("div", { id: "notes" }));
  fillRuns();
  fillNotes();
}

// Charts of a single run share one selection.

const runOptions = () => runs.map((run) => element("option", { value: run.index }, run.name));
function runChoice() {
  return element("select", {
    class: "detail", "aria-label": "run",
    onchange: (event) => {
      state.detail = Number(event.target.value);
      for (const other of document.querySelectorAll("select.detail")) other.value = event.target.value;
      redraw();
      fillDetails();
    },
  }, ...runOptions());
}
const choiceBar = () => (several() ? element("div", { class: "bar" }, element("label", {}, "run", runChoice())) : "");

function table(head, rows) {
  return element("div", { class: "scroll", tabindex: "0" }, element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, String(cell))))))));
}

function slowSteps(run) {
  const times = run.times;
  if (!times || times.outliers === 0) return [element("p", { class: "note" }, "No step took more than twice the median.")];
  const more = times.outliers > times.slow.length ? `, of which the slowest ${times.slow.length} are listed` : "";
  return [
    element("p", { class: "note" }, `${counted(times.outliers, "step")} took more than twice the median${more}:`),
    table(["step", "ms", "medians"], times.slow.map(([step, ms]) => [step, digits(ms, 4), (ms / times.median).toFixed(1)])),
  ];
}

function skippedSteps(run) {
  const { count, named } = run.skipped;
  const clippedText = run.clipped > 0 ? ` Gradients scaled down: ${whole(run.clipped)}.` : "";
  if (count === 0) return [element("p", { class: "note" }, "Every update was committed." + clippedText)];
  const more = count > named.length ? `, of which the first ${named.length} are listed` : "";
  return [
    element("p", { class: "note" }, `Not committed: ${counted(count, "update")}${more}.${clippedText}`),
    table(["step", "why", "what was not finite", "gradient norm"],
          named.map((skip) => [skip.step, skip.why, skip.what || "\u2013", short(skip.norm)])),
  ];
}

function alarms(run) {
  const { count, named } = run.alarms;
  if (count === 0) return [element("p", { class: "note" }, "None.")];
  const more = count > named.length ? [element("p", { class: "note" }, `The first ${named.length} of ${whole(count)}.`)] : [];
  return [...more, element("ul", {}, ...named.map((text) => element("li", {}, text)))];
}

function buckets(run) {
  const list = run.facts && run.facts.buckets;
  if (!Array.isArray(list) || list.length === 0) return [];
  const head = Object.keys(list[0]);
  return [element("details", {}, element("summary", {}, `${list.length} buckets: reduction, exchange and publishing`),
                  table(head, list.map((bucket) => head.map((key) => (known(bucket[key]) ? whole(bucket[key]) : bucket[key])))))];
}

function facts(run) {
  const stored = run.facts || {};
  const rows = [
    ["directory", run.directory], ["version", stored.version], ["tokenizer", stored.tokenizer],
    ["held-out data", run.heldOut],
    ["parameters", known(stored.parameters) && whole(stored.parameters)],
    ["learning rates", stored.learning_rates && Object.entries(stored.learning_rates)
      .map(([group, rate]) => `${group} ${digits(rate, 3)}`).join(", ")],
    ["tokens per step", known(run.tokensPerStep) && whole(run.tokensPerStep)],
    ["devices", known(stored.world) && `${stored.world} (${stored.backend || "host"}), ${stored.dtype}`],
    ["FLOPs per token", known(stored.flops_per_token) && short(stored.flops_per_token)],
    ["peak FLOP/s", known(stored.peak_flops) && stored.peak_flops > 0 && short(stored.peak_flops)],
    ["memory of the process", known(stored.process_bytes) && bytesText(stored.process_bytes)],
  ].filter(([, value]) => value);
  return [
    element("dl", {}, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
    run.facts ? "" : element("p", { class: "note" },
      "No run.json: an older version wrote this run. FLOPs, memory and ownership are not known."),
  ].filter((child) => child !== "");
}

function fillDetails() {
  const run = runs[state.detail];
  for (const [id, children] of Object.entries({ slow: slowSteps, skips: skippedSteps, alarms, buckets, facts }))
    fill(document.getElementById(id), ...children(run));
  fill(document.getElementById("config"), run.config || "No config.toml.");
}

// The samples of the shown runs at one step, or the last ones before it.

const MAX_SAMPLES = 12;
function sampleSteps() {
  return [...new Set(shownRuns().flatMap((run) => run.samples.map((sample) => sample.step)))].sort((a, b) => a - b);
}

function fillSamples() {
  const steps = sampleSteps();
  if (!steps.includes(state.sampleStep)) state.sampleStep = steps.length ? steps[steps.length - 1] : null;
  const slider = document.getElementById("sample-step");
  slider.max = String(Math.max(0, steps.length - 1));
  slider.value = String(Math.max(0, steps.indexOf(state.sampleStep)));
  slider.disabled = steps.length < 2;
  slider.setAttribute("aria-valuetext", `step ${state.sampleStep}`);
  document.getElementById("sample-value").textContent = state.sampleStep === null ? "" : `step ${state.sampleStep}`;
  const cards = shownRuns().flatMap((run) => {
    const found = run.samples.filter((sample) => sample.step <= state.sampleStep).pop();
    return found ? [element("article", { class: "sample" }, runName(run),
                            element("span", { class: "note" }, ` step ${found.step}`),
                            element("pre", { tabindex: "0" }, found.text))] : [];
  });
  const rest = cards.length > MAX_SAMPLES ? `The first ${MAX_SAMPLES} of ${cards.length} shown runs.` : "";
  document.getElementById("samples-note").textContent =
    cards.length ? rest : "No samples: train --sample-every writes them.";
  fill(document.getElementById("sample-cards"), ...cards.slice(0, MAX_SAMPLES));
}

function addSamples() {
  section("samples", "Samples").append(
    element("div", { class: "bar" }, element("label", {}, "of ", element("input", {
      id: "sample-step", type: "range", min: "0", step: "1", "aria-label": "step of the samples",
      oninput: (event) => { state.sampleStep = sampleSteps()[Number(event.target.value)]; fillSamples(); },
    })), element("output", { id: "sample-value", for: "sample-step" })),
    element("p", { class: "note", id: "samples-note" }), element("div", { class: "samples", id: "sample-cards" }));
  fillSamples();
}

// True if the page should have the chart.
function hasData(chart) {
  if (chart.isWanted) return chart.isWanted();
  const all = { ...view(), runs };
  return chart.ofOne ? runs.some((run) => chart.build({ ...all, detail: run })) : chart.build(all) !== null;
}

// Groups of charts. A chart is added when there are data for it, now or later.
const groups = [];
function addGroup(grid, charts, none = null) {
  const group = { grid, charts, none, nodes: new Map() };
  groups.push(group);
  fillGroup(group);
}

function fillGroup({ grid, charts, none, nodes }) {
  let next = null;
  for (const chart of [...charts].reverse()) {
    if (!nodes.has(chart) && hasData(chart)) {
      nodes.set(chart, newFigure(chart));
      grid.insertBefore(nodes.get(chart), next);
    }
    next = nodes.get(chart) || next;
  }
  if (none) none.hidden = nodes.size > 0;
  grid.hidden = nodes.size === 0;
}

function addCharts(node, charts, ...more) {
  const grid = element("div", { class: "charts" });
  const none = element("p", { class: "note" }, "The runs recorded no data for these charts.");
  node.append(grid, none, ...more);
  addGroup(grid, charts, none);
}

function fillSummary() {
  const total = runs.reduce((sum, run) => sum + run.steps, 0);
  const waiting = live && live.waiting > 0 ? `, ${live.waiting} not begun` : "";
  document.getElementById("summary").textContent =
    (runs.length === 1 ? runs[0].directory + ": " : counted(runs.length, "run") + ", ") + counted(total, "step") + waiting;
  document.title = (runs.length === 1 ? runs[0].name : `${runs.length} runs`) + " \u2013 muograph report";
}

function addPage() {
  fillSummary();
  addRuns();
  addOptions();
  addGroup(section("losses", "Loss"), [LOSS, BITS]);
  addCharts(section("speed", "Speed"), [
    seriesChart("tokens", "tokens_per_s", "Tokens per second", { axis: "tokens/s", layout: { yaxis: { rangemode: "tozero" } } }),
    seriesChart("mfu", "mfu", "MFU: share of the devices' peak", { axis: "MFU", layout: { yaxis: { tickformat: ".0%", rangemode: "tozero" } } }),
    seriesChart("power", "watts", "Power of a device", { axis: "W", layout: { yaxis: { rangemode: "tozero" } } }),
    seriesChart("clock", "clock_mhz", "Clock of the devices", { axis: "MHz", layout: { yaxis: { rangemode: "tozero" } } }),
    seriesChart("energy", "joules", "Energy of a step", { axis: "J", layout: { yaxis: { rangemode: "tozero" } } }),
  ]);
  addCharts(section("stability", "Gradients"), [
    NORM, seriesChart("clipping", "gradient_scale", "Scale of clipped gradients", { axis: "scale" }),
  ]);
  addCharts(section("updates", "Updates"), [UPDATES, LAYERS]);
  addCharts(section("schedules", "Schedules"), [
    seriesChart("muon-rate", "lr_multiplier", "Learning rate of the matrices", { axis: "learning rate", scale: matrixRate }),
    seriesChart("rate", "lr_multiplier", "Multiplier of all learning rates", { axis: "multiplier" }),
    seriesChart("momentum", "muon_momentum", "Muon's momentum", { axis: "momentum" }),
    seriesChart("decay", "muon_weight_decay", "Muon's weight decay", { axis: "weight decay" }),
  ]);
  addCharts(section("memory", "Memory"), [MEMORY]);
  addCharts(section("detail", several() ? "One run" : "Steps and ranks"), [TIMES, RANKS],
            element("div", { id: "buckets" }), element("h3", {}, "Slow steps"), element("div", { id: "slow" }),
            element("h3", {}, "Skipped and clipped steps"), element("div", { id: "skips" }),
            element("h3", {}, "Alarms"), element("div", { id: "alarms" }));
  if (several()) for (const id of ["updates-title", "detail-title"]) document.getElementById(id).after(choiceBar());
  addSamples();
  section("configuration", "Configuration").append(choiceBar() || "", element("div", { id: "facts" }),
    element("details", {}, element("summary", {}, "config.toml"), element("pre", { id: "config", tabindex: "0" })));
  fillDetails();
  addTransfers();
}

function addControls() {
  const on = (id, event, change) => document.getElementById(id).addEventListener(event, (e) => {
    change(e.target);
    redraw();
  });
  on("axis", "change", (node) => { state.axis = node.value; });
  on("log-x", "change", (node) => { state.logX = node.checked; });
  on("log-y", "change", (node) => { state.logY = node.checked; });
  on("smooth", "input", (node) => {
    state.smooth = Number(node.value);
    document.getElementById("smooth-value").textContent = node.value;
  });
  document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
}

// Follows the system's choice of light or dark until the button overrides it.
function addTheme() {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  let chosen = null;
  const apply = () => {
    const dark = chosen === null ? system.matches : chosen;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "light" : "dark";
    button.setAttribute("aria-label", dark ? "light colours" : "dark colours");
    redraw();
  };
  button.addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme !== "dark";
    apply();
  });
  system.addEventListener("change", apply);
  // Prints in light colours, at the width in style.css, with all charts drawn.
  const root = document.documentElement;
  window.addEventListener("beforeprint", () => {
    root.dataset.theme = "light";
    root.classList.add("paper");
    for (const figure of figures) {
      figure.stale = true;
      draw(figure);
    }
  });
  window.addEventListener("afterprint", () => {
    root.classList.remove("paper");
    apply();
  });
  apply();
}

addTheme();
addControls();
if (live) follow(); else addPage();
