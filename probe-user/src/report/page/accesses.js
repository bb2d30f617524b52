// Distributions of latencies, and where memory accesses were served.

const bound = (end, unit) => {
  if (baseUnit(unit).small) return amount(end, unit);
  return Number.isInteger(end) ? end : digits(end);
};

// What a histogram is of: an operation, or its metric.
const distribution = (it) => (it.of ? `latency of ${it.of}` : it.metric);

async function drawLatency() {
  const of = document.getElementById("operation").value;
  const all = withoutRest(page.head.histograms.filter((it) => distribution(it) === of))
    .filter((it) => found({ ...it, name: it.label }));
  const sum = (it) => it.counts.reduce((a, b) => a + b, 0);
  all.sort((a, b) => sum(b) - sum(a));
  const traces = all.slice(0, controls.top).map((it) => ({
    x: it.counts.map((_, at) =>
      (at < it.bounds.length ? `≤ ${bound(it.bounds[at], it.unit)}` : "more")),
    y: it.counts.map((count) => (100 * count) / Math.max(1, sum(it))), type: "bar",
    name: plain(short(it.label)), customdata: it.counts,
    hovertemplate: "%{y:.1f}% (%{customdata})",
  }));
  const unit = all.length && !baseUnit(all[0].unit).small ? ` in ${all[0].unit}` : "";
  await draw("latency", traces, layout(`${of}${unit}, % of all`, "",
    { xaxis: { type: "category" }, hovermode: "closest" }));
}

async function drawSources() {
  const wanted = document.getElementById("source-operation").value;
  const lines = withoutRest(page.head.lines.filter((line) =>
    line.metric === "memory_accesses" && line.of.startsWith(`${wanted} `))).filter(found);
  const holders = new Map();
  const sources = new Set();
  for (const line of lines) {
    const source = line.of.slice(wanted.length + 1);
    sources.add(source);
    if (!holders.has(line.holder)) holders.set(line.holder, { label: line.label, by: {}, sum: 0 });
    const holder = holders.get(line.holder);
    holder.by[source] = (holder.by[source] || 0) + line.total;
    holder.sum += line.total;
  }
  const top = [...holders.values()].sort((a, b) => b.sum - a.sum).slice(0, controls.top).reverse();
  const traces = [...sources].map((source) => ({
    type: "bar", orientation: "h", name: plain(source),
    y: top.map((_, at) => at),
    x: top.map((it) => (100 * (it.by[source] || 0)) / Math.max(it.sum, Number.MIN_VALUE)),
    customdata: top.map((it) => [it.by[source] || 0, plain(it.label)]),
    hovertemplate: "%{customdata[1]}: %{x:.1f}% (%{customdata[0]:.3s} operations)",
  }));
  await draw("sources", traces, layout(`where ${wanted} operations were served, %`, "", {
    barmode: "stack", hovermode: "closest", yaxis: namedTicks(top.map((it) => it.label)),
    xaxis: { range: [0, 100], title: { text: "% of operations" } },
  }));
}

function accessSections(redraw) {
  const { lines, histograms } = page.head;
  if (histograms.length) {
    const operation = options("operation",
      [...new Set(histograms.map(distribution))].map((of) => [of, of]));
    section("Latencies",
      element("div", { className: "controls" }, labelled("of", operation)),
      element("div", { id: "latency", className: "plot" }));
    operation.onchange = drawLatency;
    redraw.push(drawLatency);
  }
  const served = lines.filter((line) =>
    line.metric === "memory_accesses" && / /.test(line.of || ""));
  if (served.length) {
    const operation = options("source-operation",
      [...new Set(served.map((line) => line.of.split(" ")[0]))].map((of) => [of, of]));
    section("Data sources",
      element("div", { className: "controls" }, labelled("operation", operation)),
      element("div", { id: "sources", className: "plot" }));
    operation.onchange = drawSources;
    redraw.push(drawSources);
  }
}
