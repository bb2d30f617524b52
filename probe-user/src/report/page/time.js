// Values over time: of a metric, of memory, of the bandwidth of sockets and devices.

const ends = () => page.head.windows.map((window) => window[1]);

// The largest value of some lines, which chooses their common prefix.
const largestOf = (lines) => Math.max(0, ...lines.map(({ about }) => Math.abs(about.max)));

// A line over time, in the unit of a scale.
function overTime({ about, first, y, ends: interval }, scale, more = {}) {
  const trace = {
    x: ends().slice(first, first + y.length), mode: "lines", line: { width: 1.5 },
    y: y.map((value) => (value === null ? null : value * scale.factor)),
    name: plain(short(nameOf(about))), text: y.map((value) => amount(value, about.unit)),
    hovertemplate: "%{text}", connectgaps: false, ...more,
  };
  if (interval) {
    trace.customdata = interval.map((both) => both.map((end) => amount(end, about.unit)));
    trace.hovertemplate += " (95%: %{customdata[0]} to %{customdata[1]})";
  }
  if (y.filter((value) => value !== null).length === 1) trace.mode = "markers";
  return trace;
}

async function drawTime() {
  const metric = Number(document.getElementById("metric").value);
  const { name, help, unit } = page.head.metrics[metric];
  const { all, lines } = await chosen(metric, (line) => line.part !== "share");
  const scale = scaleFor(largestOf(lines), unit);
  document.getElementById("time-note").textContent = lines.length === all ? `${help}.`
    : `${help}. The ${lines.length} largest of ${all}.`;
  await draw("time", lines.map((line) => overTime(line, scale)), layout(name, scale.unit));
}

async function drawCapacity() {
  const held = (line) => line.part === "row" || line.part === "total";
  const { lines } = await chosen(metricAt("memory_used"), held, "max");
  const most = largestOf(lines);
  const scale = scaleFor(most, "B");
  const traces = lines.map((line) => overTime(line, scale));
  for (const limit of metricAt("memory_limit") < 0 ? []
    : await valuesOf(metricAt("memory_limit"))) {
    const about = page.head.lines[limit.line];
    const of = lines.findIndex((line) => line.about.holder === about.holder);
    // A single far value would flatten all lines.
    if (of < 0 || about.max > 4 * most) continue;
    traces.push(overTime({ ...limit, about: { ...about, of: "limit" } }, scale,
      { line: { width: 1, dash: "dash", color: PALETTE[of % PALETTE.length] } }));
  }
  await draw("capacity", traces, layout("memory that is held", scale.unit));
}

async function drawBandwidth() {
  const place = page.head.lines[Number(document.getElementById("place").value)];
  const { name, unit } = page.head.metrics[place.metric_at];
  const scale = scaleFor(place.max, unit);
  const [measured] = (await valuesOf(place.metric_at))
    .filter((it) => page.head.lines[it.line] === place);
  const line = { width: 2, color: colour("text") };
  const traces = [overTime({ ...measured, about: place }, scale, { line })];
  const shares = metricAt(`${name}_apportioned`);
  if (shares >= 0) {
    // The label of a device is behind that of its socket.
    const here = (line) => line.part === "share" && ` ${line.of} `.includes(` ${place.label} `);
    for (const share of (await chosen(shares, here)).lines) {
      traces.push(overTime(share, scale, { stackgroup: "shares", line: { width: 0.5 } }));
    }
  }
  const title = `${name} of ${place.label}: measured, and shares below`;
  await draw("bandwidth", traces, layout(title, scale.unit));
}

function timeSections(redraw) {
  const { metrics, lines, ordered_by: by } = page.head;
  const metric = options("metric", metrics.map(({ name }, at) => [at, name])
    .filter(([at]) => lines.some((line) => line.metric_at === at && line.part !== "share")));
  if (lines.length) {
    section("Over time",
      element("div", { className: "controls" }, labelled("metric", metric)),
      element("div", { id: "time", className: "plot" }),
      element("p", { id: "time-note", className: "quiet" }));
    if (lines.some((line) => line.metric_at === by && line.part !== "share")) metric.value = by;
    metric.onchange = drawTime;
    redraw.push(drawTime);
  }
  if (lines.some((line) => line.metric === "memory_used")) {
    section("Capacity", element("div", { id: "capacity", className: "plot" }));
    redraw.push(drawCapacity);
  }
  const places = lines.map((line, at) => [at, `${line.metric}, ${nameOf(line)}`])
    .filter(([at]) => /B\/s/.test(lines[at].unit) && lines[at].part === "place");
  if (places.length) {
    const place = options("place", places);
    section("Bandwidth of sockets and devices",
      element("div", { className: "controls" }, labelled("metric", place)),
      element("div", { id: "bandwidth", className: "plot" }));
    place.onchange = drawBandwidth;
    redraw.push(drawBandwidth);
  }
}
