// CPU waits: a heat map of pairs, and the time of one owner's threads.

const WAITED_BEHIND = "cpu_wait_behind";
const BEHIND = "behind ";

const metricAt = (name) => page.head.metrics.findIndex((it) => it.name === name);

// The keys of the lines, sorted by the sums of their totals, largest first.
function largest(lines, key) {
  const sums = new Map();
  for (const line of lines) sums.set(key(line), (sums.get(key(line)) || 0) + line.total);
  return [...sums.entries()].sort((a, b) => b[1] - a[1]).map(([name]) => name);
}

async function drawMatrix() {
  const all = page.head.lines.filter((line) => line.metric === WAITED_BEHIND);
  const lines = all.filter((line) => found(line) || found({ label: line.of, name: line.of }));
  const waiting = largest(lines, (line) => line.label).slice(0, controls.top).reverse();
  const behind = largest(lines, (line) => line.of.slice(BEHIND.length)).slice(0, controls.top);
  const z = waiting.map(() => behind.map(() => null));
  for (const line of lines) {
    const row = waiting.indexOf(line.label);
    const column = behind.indexOf(line.of.slice(BEHIND.length));
    // Containers of one name share a cell.
    if (row >= 0 && column >= 0) z[row][column] = (z[row][column] || 0) + line.mean / 1e9;
  }
  const trace = {
    type: "heatmap", x: behind.map((name) => plain(short(name))),
    y: waiting.map((name) => plain(short(name))), z, colorscale: "YlOrRd", reversescale: true,
    zmin: 0, hovertemplate: "%{y} waits behind %{x}: %{z:.3~g} s each second<extra></extra>",
    colorbar: { title: { text: "s/s", side: "right" }, thickness: 12 },
  };
  await draw("matrix", [trace], layout("waits for a CPU, seconds each second", "", {
    hovermode: "closest", showlegend: false, height: Math.max(430, 120 + 34 * waiting.length),
    xaxis: { title: { text: "behind" }, automargin: true, type: "category" },
    yaxis: { title: { text: "who waits" }, automargin: true, type: "category" },
  }));
}

// Average threads: running, waiting by what ran meanwhile, in state D.
async function drawLedger() {
  const holder = Number(document.getElementById("waiting").value);
  const of = async (name) => {
    const lines = metricAt(name) < 0 ? [] : await valuesOf(metricAt(name));
    const own = lines.map((it) => ({ ...it, about: page.head.lines[it.line] }));
    return own.filter(({ about }) => about.holder === holder && about.part === "row");
  };
  const stacked = { stackgroup: "ledger", line: { width: 0.5 } };
  const named = (line, name) => ({ ...line, about: { ...line.about, label: name, of: "" } });
  const traces = (await of("cpus_used")).map((line) =>
    overTime(named(line, "running"), "threads", stacked));
  const waits = (await of(WAITED_BEHIND)).sort((a, b) => b.about.total - a.about.total);
  const seconds = (line) => ({ ...line, y: line.y.map((y) => (y === null ? null : y / 1e9)) });
  for (const line of waits.slice(0, controls.top)) {
    traces.push(overTime(named(seconds(line), line.about.of), "threads", stacked));
  }
  for (const line of await of("threads_uninterruptible")) {
    traces.push(overTime(named(line, "in state D"), "threads", stacked));
  }
  await draw("ledger", traces, layout("threads on average", ""));
}

function waitSections(redraw) {
  const lines = page.head.lines.filter((line) => line.metric === WAITED_BEHIND);
  if (!lines.length) return;
  section("Who waits for whom", element("div", { id: "matrix", className: "plot" }));
  const label = new Map(lines.map((line) => [line.holder, line.label]));
  const waiting = options("waiting",
    largest(lines, (line) => line.holder).map((holder) => [holder, label.get(holder)]));
  section("Running and waiting",
    element("div", { className: "controls" }, labelled("of", waiting)),
    element("div", { id: "ledger", className: "plot" }));
  waiting.onchange = drawLedger;
  redraw.push(drawMatrix, drawLedger);
}
