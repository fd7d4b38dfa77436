// What the script of a report's page computes from runs, without a page. scripts/look_at_report.py tests the charts
// themselves in a browser.
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const test = require("node:test");
const vm = require("node:vm");

const page = path.join(__dirname, "../../src/kit/report/page");
const read = (file) => fs.readFileSync(path.join(page, file), "utf8");
const style = read("style.css");

// The script with these runs, and a view of all of them.
function pageOf(list) {
  const context = vm.createContext({
    window: { innerWidth: 1200 }, document: { documentElement: {} },
    getComputedStyle: () => ({ getPropertyValue: () => "#888888" }),
  });
  vm.runInContext('document.getElementById = () => ({ textContent: "[]" });\n' +
                  ["model.js", "charts.js", "options.js", "transfer.js"].map(read).join("\n") + `
    let runs = [];
    const view = () => ({ axis: "step", smooth: 0, logX: false, logY: false, heat: [], runs });
    function start(text) { runs = loadRuns(text); return view(); }`, context);
  context.shown = context.start(JSON.stringify(list));
  return (code) => JSON.parse(vm.runInContext(`JSON.stringify(${code})`, context));
}
const run = (options, valLoss = 1, more = {}) => ({
  name: Object.values(options).join("-"), options, asides: ["log-every"], steps: 10, valLoss, valBpb: null, facts: null,
  series: {}, skipped: { named: [] }, ...more,
});

test("Options that move together are one axis, those of logging and the seed none", () => {
  const of = pageOf([256, 512, 512, 1024].map((batch, i) =>
    run({ batch, lr: batch / 100, depth: i % 2, "log-every": i, seed: i, out: i })));
  assert.deepStrictEqual(of("sweptAxes().map((axis) => axis.name)"), ["--batch, --lr", "--depth"]);
  assert.deepStrictEqual(of("sweptAxes()[0].text(runs[1])"), "512, 5.12");
});

test("Random values move together only if they rise, or fall, together", () => {
  const of = pageOf([[0.1, 5, 1], [0.3, 2, 3], [0.2, 4, 2], [0.4, 1, 9]].map(([a, b, c], i) =>
    run({ a, b, c, d: [1, 0, 3, 2][i] })));
  assert.deepStrictEqual(of("sweptAxes().map((axis) => axis.name)"), ["--a, --b, --c", "--d"]);
});

test("Random values that each have several seeds do not move together by that", () => {
  const of = pageOf([[0.1, 5], [0.3, 2], [0.2, 9]].flatMap(([a, b]) => [1, 2].map((seed) => run({ a, b, seed }))));
  assert.deepStrictEqual(of("sweptAxes().map((axis) => axis.name)"), ["--a", "--b"]);
});

test("Of options of too few runs the page says that they are not identifiable", () => {
  const few = pageOf([[1, 1, 2], [2, 1, 1], [1, 2, 1], [2, 2, 3]].map(([a, b, c], i) => run({ a, b, c }, i)));
  assert.deepStrictEqual(few("IMPORTANCE.build(shown).data"), []);
  assert.match(few("IMPORTANCE.build(shown).note"), /Not identifiable, as these runs are too few: --a; --b; --c\./);
  const enough = pageOf([1, 2, 1, 2, 1, 2].map((a, i) => run({ a }, a + i / 100)));
  assert.deepStrictEqual(enough("IMPORTANCE.build(shown).data[0].y"), ["--a"]);
  assert.doesNotMatch(enough("IMPORTANCE.build(shown).note"), /identifiable/);
});

const curve = (y, every = 1) => ({ x: y.map((_, i) => i * every), y });

test("Runs on other held-out data are not compared, and the page says so", () => {
  const of = pageOf([[1, "a"], [2, "a"], [3, "b"]].map(([n, heldOut]) =>
    run({ n }, 4 - n, { heldOut, series: { val_loss: curve([5, 4 - n]) } })));
  assert.match(of("incomparableText(runs)"), /data differ.*cannot be compared\. a: 1, 2; b: 3\.$/);
  assert.deepStrictEqual(of("comparable(shown).runs.map((run) => run.name)"), ["1", "2"]);
  assert.match(of("PARALLEL.build(shown).note"), /Omitted, as their held-out data differ: 1 run\./);
  assert.strictEqual(of('bestOf(runs, "val_loss").run.name'), "2");
  assert.strictEqual(pageOf([run({ n: 1 }), run({ n: 2 }, 1, { heldOut: "a" })])("incomparableText(runs)"), "");
});

test("Of a halved sweep the trials are compared where all still ran", () => {
  const lasts = [9, 8, 7, 6, 5, 4, 3, 2];  // at step 20; the better half continues to 40
  const of = pageOf(lasts.map((last, i) => run({ a: i < 4 ? 1 : 2, b: i % 2 }, i < 4 ? last : 10 + last, {
    steps: i < 4 ? 20 : 40, series: { val_loss: curve([99, last, ...(i < 4 ? [] : [10 + last])], 20) } })));
  assert.strictEqual(of("comparable(shown).steps"), 20);
  assert.deepStrictEqual(of("runs.map(comparable(shown).score)"), lasts);
  assert.match(of("HEAT.build({ ...shown, heat: ['--a', '--b'] }).note"), /at step 20, which all 8 shown runs/);
  assert.deepStrictEqual(of("HEAT.build({ ...shown, heat: ['--a', '--b'] }).data[0].z"), [[8, 4], [7, 3]]);
  assert.ok(of("importance(comparable(shown), sweptAxes()[0])") > 0.5);
});

test("One run that ended early does not cut the others short", () => {
  const of = pageOf([30, 30, 30, 10].map((steps, a) =>
    run({ a }, a, { steps, series: { val_loss: curve(Array(steps / 10 + 1).fill(a), 10) } })));
  assert.strictEqual(of("comparable(shown).steps"), 30);
  assert.match(of("comparedNote(comparable(shown))"), /which 3 of the 4 shown runs/);
});

test("The loss axis fits what follows the first tenth, and no line leads away from step 0", () => {
  const loss = curve(Array.from({ length: 101 }, (_, i) => (i <= 10 ? 11 - i / 2 : 4 - i / 100)));
  const of = pageOf([run({ n: 1 }, 3, { series: { loss, val_loss: curve([11, 3.5, 3], 50) } })]);
  const [low, high] = of("LOSS.build(shown).layout.yaxis.range");
  assert.ok(low < 3 && low > 2.9 && high > 3.89 && high < 4, `${low} ${high}`);
  assert.strictEqual(of("LOSS.build({ ...shown, logX: true }).layout.yaxis.range ?? null"), null);
  assert.deepStrictEqual(of("LOSS.build(shown).data[1].y"), [11, null, 3.5, 3]);
  assert.deepStrictEqual(of("LOSS.build(shown).data[1].x"), [0, null, 50, 100]);
});

test("Tokens and FLOPs follow the batch that each step had", () => {
  const tokens = { x: [0, 3, 9], y: [64, 256, 1024] };  // 64 per step, and 128 from step 4 on
  const of = pageOf([run({ n: 1 }, 1, { tokens, clock: { x: [], y: [] }, facts: { flops_per_token: 10 } })]);
  assert.deepStrictEqual(of('[0, 3, 4, 9].map(axisOf(runs[0], "tokens", 1))'), [64, 256, 384, 1024]);
  assert.deepStrictEqual(of('[0, 4, 5, 10].map(axisOf(runs[0], "tokens", 0))'), [0, 256, 384, 1024]);
  assert.deepStrictEqual(of('[4].map(axisOf(runs[0], "flops", 1))'), [3840]);
  assert.strictEqual(of('axisOf(runs[0], "time", 1)'), null);
});

test("The lowest held-out value is marked", () => {
  const of = pageOf([run({ n: 1 }, 3, { series: { val_loss: curve([9, 2, 3], 5) } }),
                     run({ n: 2 }, 2.5, { series: { val_loss: curve([9, 4, 2.5], 5) } })]);
  const { x, y, text } = of("LOSS.build(shown).data.find((trace) => trace.name === 'best')");
  assert.deepStrictEqual([x, y, text], [[5], [2], ["best: 1, 2 at step 5"]]);
});

test("Runs that differ in their seed only have one colour, and a mean", () => {
  const of = pageOf([[1, 1, 2], [1, 2, 4], [2, 1, 7], [3, 1, 1], [3, 1, 1]].map(([n, seed, last]) =>
    run({ n, seed }, last, { series: { val_loss: curve([9, last]) } })));
  assert.deepStrictEqual(of("runs.map((run) => run.seeds.length)"), [2, 2, 1, 1, 1], "the same seed twice is no other");
  assert.deepStrictEqual(of("runs.map((run) => PALETTE.indexOf(run.colour))"), [0, 0, 2, 3, 4]);
  assert.deepStrictEqual(of("runs.map(seedMean)"), [3, 3, null, null, null]);
  const traces = of("LOSS.build(shown).data");
  assert.deepStrictEqual(traces.slice(0, 2).map((trace) => trace.opacity), [0.35, 0.35]);
  const mean = traces.find((trace) => trace.name.startsWith("mean of 2 seeds: 1-1"));
  assert.deepStrictEqual([mean.y, mean.opacity], [[9, null, 3], 1]);
});

test("Ticks are round, and whole where values are", () => {
  const of = pageOf([]);
  assert.deepStrictEqual(of("roundTicks(0.0548, 0.8)"), [0.2, 0.4, 0.6, 0.8]);
  assert.deepStrictEqual(of("roundTicks(0.03, 0.8)"), [0.05, 0.1, 0.2, 0.5]);
  assert.deepStrictEqual(of("roundTicks(1.43, 1.52)"), [1.44, 1.46, 1.48, 1.5, 1.52]);
  assert.deepStrictEqual(of("roundTicks(-3, 4)"), [-2, 0, 2, 4]);
  assert.deepStrictEqual(of("roundTicks(2, 2)"), [2]);
  const sweep = pageOf([[2, 0.07], [4, 0.01], [8, 0.49]].map(([depth, lr], i) => run({ depth, lr }, 1 + i / 9)));
  const [depth, lr, loss] = sweep("PARALLEL.build(shown).data[0].dimensions");
  assert.deepStrictEqual([depth.tickvals, depth.ticktext], [[2, 4, 8], ["2", "4", "8"]]);
  assert.deepStrictEqual(lr.ticktext, ["0.07", "0.01", "0.49"]);
  assert.deepStrictEqual(loss.ticktext, ["1", "1.05", "1.1", "1.15", "1.2"]);
});

test("Rows of the table begin with the best run, and end with runs that do not compare", () => {
  const of = pageOf([[3, "a"], [1, "a"], [2, "a"], [0, "b"], [null, "a"]].map(([low, heldOut], n) =>
    run({ n }, low, { heldOut, series: low === null ? {} : { val_loss: curve([5, low, 4]) } })));
  assert.deepStrictEqual(of("bestFirst(runs).map((run) => run.index)"), [1, 2, 0, 3, 4]);
});

test("Columns are the searched options first, one for those with equal values", () => {
  const of = pageOf([2, 4].map((depth, i) => run({ "log-every": i, depth, "n-layer": depth, "n-embd": 64 * depth, seed: i })));
  assert.deepStrictEqual(of("optionsToShow(runs)"), [["depth", "n-layer"], ["n-embd"], ["log-every", "seed"]]);
});

test("One record of the layers is drawn as bars", () => {
  const layers = (x) => pageOf([run({ n: 1 }, 1, { layers: { x, rows: [[0.1, 0.2], [0.3, 0.4]].map((row) => row.slice(0, x.length)) } })]);
  const { data: [bars], note } = layers([100])("LAYERS.build({ ...shown, detail: runs[0] })");
  assert.deepStrictEqual([bars.type, bars.y], ["bar", [0.1, 0.3]]);
  assert.match(note, /Recorded once, at step 100\./);
  assert.strictEqual(layers([100, 200])("LAYERS.build({ ...shown, detail: runs[0] }).data[0].type"), "heatmap");
});

test("The bars of memory add up to what is allocated", () => {
  const facts = { memory_bytes_per_device: 4 * 2 ** 20,
                  memory_bytes_by_category: { weights: 2 ** 20, momentum: 2 ** 20, masters: 0, activations: 9 * 2 ** 20 } };
  const of = pageOf([run({ n: 1 }, 1, { facts })]);
  assert.deepStrictEqual(of("MEMORY.build(shown).data.map((bar) => [bar.name, bar.x[0]])"),
                         [["weights", 1], ["momentum", 1], ["gradients, activations and scratch", 2]]);
  assert.match(of("MEMORY.build(shown).data[0].customdata[0]"), /^weights: 1.00 MiB<br>momentum: .*<br>activations: 9.00 MiB$/);
});

test("Learning rates are drawn as they are", () => {
  const series = { lr_multiplier: curve([0.5, 1]) };
  const of = pageOf([run({ n: 1 }, 1, { series, facts: { learning_rates: { matrices: 0.02 } } }), run({ n: 2 }, 1, { series })]);
  assert.deepStrictEqual(of("curves(shown, 'lr_multiplier', { scale: matrixRate })").data.map((trace) => trace.y), [[0.01, 0.02]]);
});

test("A transfer shows each depth's runs, fit and optimum, and the prediction", () => {
  const depths = [2, 4].map((depth) => ({ depth, optimum: [0.2, 0.1, 0.4], curvature: 0.05,
                                          runs: [[0.1, 0.02], [0.2, 0], [0.4, 0.03], [9, 5]] }));
  const transfer = { option: "matrix-lr", unit: "loss", target: 8, confidence: 0.95, factor: 4, text: "",
                     depths: [...depths, { depth: 3, problem: "few" }], prediction: [0.3, 0.2, 0.5] };
  const { data, layout } = pageOf([])(`transferChart(${JSON.stringify(transfer)}, 0).build()`);
  assert.deepStrictEqual(data.map((trace) => trace.name),
                         [...Array(3).fill("depth 2"), ...Array(3).fill("depth 4"), "depth 8, predicted"]);
  assert.ok(Math.abs(data[1].y[0] - 0.05 * Math.log(2) ** 2) < 1e-9);
  assert.ok(layout.yaxis.range[1] < 0.05, "a run far from the optimum does not set the scale");
  assert.deepStrictEqual(data[6].error_x.array.map((x) => x.toFixed(3)), ["0.200"]);
  delete transfer.prediction;
  assert.strictEqual(pageOf([])(`transferChart(${JSON.stringify(transfer)}, 0).build().data.length`), 6);
});

test("Lines can be seen on the cards of both themes", () => {
  const light = (colour) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const cards = [...style.matchAll(/--card: (#\w{6})/g)].map(([, colour]) => colour);
  assert.strictEqual(cards.length, 2);
  const colours = pageOf(Array.from({ length: 25 }, (_, n) => run({ n })))("runs.map((run) => run.colour)");
  for (const colour of new Set(colours))
    for (const card of cards) {
      const [low, high] = [light(colour), light(card)].sort((a, b) => a - b);
      assert.ok(high / low >= 3, `${colour} on ${card}: ${high / low}`);
    }
});
