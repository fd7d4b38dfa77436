// For each sweep with --transfer-to, a chart of its results by depth: scores above the fitted minimum of their depth
// and seed, the fits, and below them the optima and the prediction with their intervals.

const transfers = JSON.parse(document.getElementById("transfers").textContent);

function transferChart(transfer, index) {
  const fitted = transfer.depths.filter((each) => each.optimum);
  const near = (each, value) => Math.abs(Math.log(value / each.optimum[0])) <= Math.log(transfer.factor);
  const build = () => {
    const nearRuns = fitted.flatMap((each) => each.runs.filter(([value]) => near(each, value)));
    const top = 1.1 * Math.max(...nearRuns.map(([, y]) => y)), row = (i) => -0.07 * top * (i + 1);
    const values = [...nearRuns.map(([value]) => value), ...(transfer.prediction || [])];
    const data = fitted.flatMap((each, i) => {
      const colour = PALETTE[i % PALETTE.length], name = `depth ${each.depth}`;
      const shown = each.runs.map(([value]) => value).filter((value) => near(each, value));
      const low = Math.log(Math.min(...shown)), high = Math.log(Math.max(...shown));
      const line = Array.from({ length: 60 }, (_, at) => low + (high - low) * at / 59);
      return [
        { type: "scatter", mode: "markers", name, showlegend: false, marker: { color: colour, size: 6 },
          x: each.runs.map(([value]) => value), y: each.runs.map(([, y]) => y) },
        { type: "scatter", mode: "lines", name, line: { color: colour, width: 1.6 }, hoverinfo: "skip",
          x: line.map(Math.exp), y: line.map((x) => each.curvature * (x - Math.log(each.optimum[0])) ** 2) },
        interval(each.optimum, row(i), name, colour),
      ];
    });
    if (transfer.prediction)
      data.push({ ...interval(transfer.prediction, row(fitted.length), `depth ${transfer.target}, predicted`,
                              themeColour("--ink")), showlegend: true });
    return {
      data, note: `Below zero: the optima with ${digits(100 * transfer.confidence, 4)} % intervals.`,
      layout: { showlegend: true, legend: { orientation: "h", y: 1.12 },
                xaxis: { type: "log", title: { text: plain(`${transfer.option}, log scale`) },
                         range: [Math.log10(Math.min(...values) / 1.2), Math.log10(Math.max(...values) * 1.2)] },
                yaxis: { title: { text: plain(`${transfer.unit} above the minimum`) },
                         range: [row(fitted.length + 1), top] } },
    };
  };
  return { id: `transfer-${index}`, title: `${transfer.option} by depth`, wide: true,
           isWanted: () => fitted.length > 0, build };
}

function interval([value, low, high], y, name, colour) {
  return { type: "scatter", mode: "markers", name, x: [value], y: [y], showlegend: false,
           marker: { color: colour, symbol: "diamond", size: 9 },
           error_x: { type: "data", symmetric: false, array: [high - value], arrayminus: [value - low], color: colour },
           hovertemplate: `${digits(value, 3)} (${digits(low, 3)} to ${digits(high, 3)})<extra>${plain(name)}</extra>` };
}

function addTransfers() {
  if (transfers.length === 0) return;
  const grid = element("div", { class: "charts" });
  section("transfer", "Transfer to another depth", "losses").append(
    grid, ...transfers.map((transfer) => element("pre", { tabindex: "0" }, transfer.text)));
  addGroup(grid, transfers.map(transferChart));
}
