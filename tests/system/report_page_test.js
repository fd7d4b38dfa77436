// What the script of a report's page computes of runs, without a page. Charts themselves are looked at by
// scripts/look_at_report.py, in a browser.
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const test = require("node:test");
const vm = require("node:vm");

const page = path.join(__dirname, "../../src/app/report/page");
const read = (file) => fs.readFileSync(path.join(page, file), "utf8");
const style = read("style.css");

// The script with these runs on it, and a view of all of them.
function pageOf(list) {
  const context = vm.createContext({
    window: { innerWidth: 1200 }, document: { documentElement: {} },
    getComputedStyle: () => ({ getPropertyValue: () => "#888888" }),
  });
  vm.runInContext(["model.js", "charts.js", "options.js"].map(read).join("\n") + `
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
  assert.match(of("unlikeText(runs)"), /not the same.*do not compare\. a: 1, 2; b: 3\.$/);
  assert.deepStrictEqual(of("comparable(shown).runs.map((run) => run.name)"), ["1", "2"]);
  assert.match(of("PARALLEL.build(shown).note"), /Left out, as their held-out data are others: 1 run\./);
  assert.strictEqual(of('bestOf(runs, "val_loss").run.name'), "2");
  assert.strictEqual(pageOf([run({ n: 1 }), run({ n: 2 }, 1, { heldOut: "a" })])("unlikeText(runs)"), "");
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
