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

test("Of options of too few runs the page says that they are not identifiable", () => {
  const few = pageOf([[1, 1, 2], [2, 1, 1], [1, 2, 1], [2, 2, 3]].map(([a, b, c], i) => run({ a, b, c }, i)));
  assert.deepStrictEqual(few("IMPORTANCE.build(shown).data"), []);
  assert.match(few("IMPORTANCE.build(shown).note"), /Not identifiable, as these runs are too few: --a; --b; --c\./);
  const enough = pageOf([1, 2, 1, 2, 1, 2].map((a, i) => run({ a }, a + i / 100)));
  assert.deepStrictEqual(enough("IMPORTANCE.build(shown).data[0].y"), ["--a"]);
  assert.doesNotMatch(enough("IMPORTANCE.build(shown).note"), /identifiable/);
});
