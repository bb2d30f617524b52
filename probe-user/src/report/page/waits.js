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

// Ticks with names at 0, 1, 2...: shortened names may be equal.
const namedTicks = (names) => ({ tickmode: "array", tickvals: names.map((_, at) => at),
  ticktext: names.map((name) => plain(short(name, isNarrow() ? 16 : 40))), showgrid: false,
  zeroline: false });

async function drawMatrix() {
  const all = page.head.lines.filter((line) => line.metric === WAITED_BEHIND);
  const lines = withoutRest(all)
    .filter((line) => found(line) || found({ label: line.of, name: line.of }));
  const waiting = largest(lines, (line) => line.label).slice(0, controls.top).reverse();
  const most = isNarrow() ? Math.min(5, controls.top) : controls.top;
  const behind = largest(lines, (line) => line.of.slice(BEHIND.length)).slice(0, most);
  const z = waiting.map(() => behind.map(() => null));
  for (const line of lines) {
    const row = waiting.indexOf(line.label);
    const column = behind.indexOf(line.of.slice(BEHIND.length));
    // Containers of one name share a cell.
    if (row >= 0 && column >= 0) z[row][column] = (z[row][column] || 0) + line.mean;
  }
  // Waits behind the rest of the machine are shown, but do not set the scale.
  const rest = new Set(page.head.lines.filter((line) => line.rest).map((line) => line.label));
  const sets = (column) => controls.rest || !rest.has(behind[column]);
  const values = z.flatMap((row) => row.filter((value, column) => value && sets(column)));
  const known = values.length ? values : z.flat().filter(Boolean);
  const text = z.map((row) => row.map((value) => (value ? threeDigits(value) : "")));
  const trace = {
    type: "heatmap", z, text, texttemplate: "%{text}", zmin: 0,
    zmax: Math.max(...known, Number.MIN_VALUE), showscale: !isNarrow(),
    colorscale: [[0, colour("panel")], [0.5, colour("warm")], [1, colour("hot")]],
    customdata: waiting.map((one) => behind.map((other) => [plain(one), plain(other)])),
    hovertemplate: "%{customdata[0]}<br>waits behind %{customdata[1]}:<br>"
      + "%{text} threads on average<extra></extra>",
    colorbar: { thickness: 12, outlinewidth: 0 }, xgap: 1, ygap: 1,
  };
  await draw("matrix", [trace], layout("threads that wait for a CPU, on average", "", {
    hovermode: "closest", showlegend: false, height: 220 + 30 * Math.max(3, waiting.length),
    xaxis: { title: { text: "behind" }, ...namedTicks(behind) },
    yaxis: { title: { text: isNarrow() ? "" : "who waits" }, ...namedTicks(waiting) },
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
  const scale = { factor: 1, unit: "threads" };
  const stacked = (line, name) => overTime(
    { ...line, about: { ...line.about, label: name, of: "", unit: "thread" } }, scale,
    { stackgroup: "ledger", line: { width: 0.5 } });
  const traces = (await of("cpus_used")).map((line) => stacked(line, "running"));
  const waits = (await of(WAITED_BEHIND)).sort((a, b) => b.about.total - a.about.total);
  traces.push(...waits.slice(0, controls.top).map((line) => stacked(line, line.about.of)));
  traces.push(...(await of("threads_uninterruptible"))
    .map((line) => stacked(line, "in state D")));
  await draw("ledger", traces, layout("threads on average", ""));
}

function waitSections(redraw) {
  const lines = page.head.lines.filter((line) => line.metric === WAITED_BEHIND);
  if (!lines.length) return;
  section("Who waits for whom", element("div", { id: "matrix", className: "plot" }));
  const label = new Map(lines.map((line) => [line.holder, line.label]));
  const holders = (rest) => largest(lines.filter((line) => line.rest === rest),
    (line) => line.holder);
  const waiting = options("waiting",
    [...holders(false), ...holders(true)].map((holder) => [holder, label.get(holder)]));
  section("Running and waiting",
    element("div", { className: "controls" }, labelled("of", waiting)),
    element("div", { id: "ledger", className: "plot" }));
  waiting.onchange = drawLedger;
  redraw.push(drawMatrix, drawLedger);
}
