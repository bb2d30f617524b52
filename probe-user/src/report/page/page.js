"use strict";
// The page of a recording: reads the blocks of data above, fills the table, draws the plots.

function bytesOf(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  // A loop: Uint8Array.from() would call a function for each of millions of bytes.
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return bytes;
}

async function unpacked(id) {
  const stream = new Blob([bytesOf(id)]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("gzip"))).text();
}

// Names go into text nodes, never into markup.
function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Plotly interprets some markup in names.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

const short = (text) => (text.length > 60 ? `${text.slice(0, 28)}…${text.slice(-31)}` : text);

function digits(value) {
  if (value === null || value === undefined) return "-";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5) {
    const power = Math.min(5, Math.floor(Math.log10(size) / 3));
    return `${(value / 1000 ** power).toPrecision(4)} ${["", "k", "M", "G", "T", "P"][power]}`;
  }
  return size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

const nameOf = (line) => (line.of ? `${line.label}, ${line.of}` : line.label);
const page = { head: null, drawn: {}, samples: null, roofline: null, calibrations: [],
  sampling: null };
const cache = new Map();

// The lines of a metric with their values over time.
function valuesOf(metric) {
  if (!cache.has(metric)) {
    cache.set(metric, unpacked(`metric-${metric}`).then((text) => JSON.parse(text)));
  }
  return cache.get(metric);
}

const controls = { search: "", top: 10 };

const found = (line) => {
  const wanted = controls.search.toLowerCase();
  return [line.label, line.name].some((name) => name.toLowerCase().includes(wanted));
};

// The largest lines of a metric that match the search.
async function chosen(metric, wanted, by = "mean") {
  const lines = (await valuesOf(metric)).map((it) => ({ ...it, about: page.head.lines[it.line] }));
  const fit = lines.filter(({ about }) => wanted(about) && found(about));
  fit.sort((a, b) => b.about[by] - a.about[by]);
  return { all: fit.length, lines: fit.slice(0, controls.top) };
}

const PALETTE = ["#3366cc", "#e8710a", "#2e9e6b", "#c5364a", "#7b5ecb", "#8a6d3b", "#d86fb0",
  "#6b7785", "#a8a11f", "#1aa3b8"];

function layout(title, unit, more = {}) {
  const narrow = document.body.clientWidth < 900;
  return {
    height: 430, margin: { l: 70, r: 16, t: narrow ? 56 : 30, b: 44 }, colorway: PALETTE,
    // On a narrow screen it is below the buttons.
    title: { text: plain(unit ? `${title} (${unit})` : title), font: { size: 13 }, x: 0.01,
      ...(narrow ? { y: 1, yref: "container", yanchor: "top", pad: { t: 34 } } : {}) },
    xaxis: { title: { text: "seconds since the beginning", font: { size: 12 } }, zeroline: false,
      automargin: true },
    yaxis: { rangemode: "tozero", zeroline: true, exponentformat: "SI" },
    hovermode: narrow ? "closest" : "x", hoverlabel: { namelength: -1, font: { size: 11 } },
    legend: narrow ? { orientation: "h", yref: "container", y: 0, yanchor: "bottom" }
      : { font: { size: 11 } },
    showlegend: true, ...more,
  };
}

function draw(id, traces, shown) {
  const place = document.getElementById(id);
  page.drawn[id] = traces.length;
  return Plotly.react(place, traces, shown, { responsive: true, displaylogo: false });
}

const ends = () => page.head.windows.map((window) => window[1]);

function overTime({ about, first, y, ends: interval }, unit, more = {}) {
  const trace = {
    x: ends().slice(first, first + y.length), y, name: plain(short(nameOf(about))), mode: "lines", line: { width: 1.5 },
    hovertemplate: `%{y:.4s} ${plain(unit)}`, connectgaps: false, ...more,
  };
  if (interval) {
    trace.customdata = interval;
    trace.hovertemplate += " (95%: %{customdata[0]:.4s} to %{customdata[1]:.4s})";
  }
  if (y.length === 1) trace.mode = "markers";
  return trace;
}

async function drawTime() {
  const metric = Number(document.getElementById("metric").value);
  const { name, help, unit } = page.head.metrics[metric];
  const { all, lines } = await chosen(metric, (line) => line.part !== "share");
  const note = document.getElementById("time-note");
  note.textContent = `${help}. The ${lines.length} largest of ${all} that the search finds.`;
  await draw("time", lines.map((line) => overTime(line, unit)), layout(name, unit));
}

async function drawCapacity() {
  const metric = page.head.metrics.findIndex((it) => it.name === "memory_used");
  const limits = page.head.metrics.findIndex((it) => it.name === "memory_limit");
  const held = (line) => line.part === "row" || line.part === "total";
  const { lines } = await chosen(metric, held, "max");
  const traces = lines.map((line) => overTime(line, "B"));
  const most = Math.max(...lines.map((line) => line.about.max));
  for (const limit of limits < 0 ? [] : await valuesOf(limits)) {
    const about = page.head.lines[limit.line];
    const of = lines.findIndex((line) => line.about.holder === about.holder);
    // A single far value would flatten all lines.
    if (of < 0 || about.max > 4 * most) continue;
    const colour = PALETTE[of % PALETTE.length];
    traces.push(overTime({ ...limit, about: { ...about, of: "limit" } }, "B",
      { line: { width: 1, dash: "dash", color: colour } }));
  }
  await draw("capacity", traces, layout("memory that is held", "B"));
}

async function drawBandwidth() {
  const place = page.head.lines[Number(document.getElementById("place").value)];
  const { name, unit } = page.head.metrics[place.metric_at];
  const [measured] = (await valuesOf(place.metric_at))
    .filter((it) => page.head.lines[it.line] === place);
  const line = { width: 2, color: "#111" };
  const traces = [overTime({ ...measured, about: place }, unit, { line })];
  const shares = page.head.metrics.findIndex((it) => it.name === `${name}_apportioned`);
  if (shares >= 0) {
    const here = (line) => line.part === "share" && `${line.of} `.startsWith(`${place.label} `);
    for (const share of (await chosen(shares, here)).lines) {
      traces.push(overTime(share, unit, { stackgroup: "shares", line: { width: 0.5 } }));
    }
  }
  const title = `${name} of ${place.label}: measured, and shares below`;
  await draw("bandwidth", traces, layout(title, unit));
}

const bound = (end) => (Number.isInteger(end) ? end : digits(end));

// What a histogram is of: an operation, or its metric.
const distribution = (it) => (it.of ? `latency of ${it.of}` : it.metric);

async function drawLatency() {
  const of = document.getElementById("operation").value;
  const all = page.head.histograms
    .filter((it) => distribution(it) === of && found({ ...it, name: it.label }));
  const sum = (it) => it.counts.reduce((a, b) => a + b, 0);
  all.sort((a, b) => sum(b) - sum(a));
  const traces = all.slice(0, controls.top).map((it) => ({
    x: it.counts.map((_, at) => (at < it.bounds.length ? `≤ ${bound(it.bounds[at])}` : "more")),
    y: it.counts.map((count) => (100 * count) / Math.max(1, sum(it))), type: "bar",
    name: plain(short(it.label)), customdata: it.counts,
    hovertemplate: "%{y:.1f}% (%{customdata})",
  }));
  const unit = all.length ? all[0].unit : "";
  await draw("latency", traces, layout(`${of} in ${unit}, % of all`, "",
    { xaxis: { type: "category", automargin: true }, hovermode: "closest" }));
}

async function drawSources() {
  const metric = page.head.metrics.findIndex((it) => it.name === "memory_accesses");
  const wanted = document.getElementById("source-operation").value;
  const lines = page.head.lines.filter((line) =>
    line.metric_at === metric && line.of.startsWith(`${wanted} `) && found(line));
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
    y: top.map((it) => plain(short(it.label))),
    x: top.map((it) => (100 * (it.by[source] || 0)) / Math.max(it.sum, Number.MIN_VALUE)),
    customdata: top.map((it) => it.by[source] || 0),
    hovertemplate: "%{x:.1f}% (%{customdata:.3s} operations)",
  }));
  await draw("sources", traces, layout(`where ${wanted} operations were served, %`, "", {
    barmode: "stack", hovermode: "closest", yaxis: { automargin: true, type: "category" },
    xaxis: { range: [0, 100], title: { text: "% of operations" } },
  }));
}

const sorting = { column: 0, down: true };

// One row for each subject and operation: the means of its windows.
function fillTable() {
  const part = document.getElementById("part").value;
  const lines = page.head.lines
    .filter((line) => line.part === part && line.metric !== WAITED_BEHIND);
  const columns = [...new Set(lines.map((line) => line.metric_at))].sort((a, b) => a - b);
  const rows = new Map();
  for (const line of lines.filter(found)) {
    const key = `${line.holder} ${line.of || ""}`;
    if (!rows.has(key)) rows.set(key, { name: nameOf(line), values: new Map() });
    rows.get(key).values.set(line.metric_at, line);
  }
  const column = columns[Math.min(sorting.column, columns.length - 1)];
  const of = (row) => row.values.get(column)?.mean ?? -Infinity;
  const sorted = [...rows.values()].sort((a, b) => (sorting.down ? of(b) - of(a) : of(a) - of(b)));
  const heads = columns.map((at, number) => {
    const { name, unit, help } = page.head.metrics[at];
    const head = element("th", { title: help }, name, element("small", {}, unit || "\u00a0"));
    head.onclick = () => {
      sorting.down = sorting.column === number ? !sorting.down : true;
      sorting.column = number;
      fillTable();
    };
    return head;
  });
  const body = sorted.map((row) => {
    const cells = columns.map((at) => {
      const line = row.values.get(at);
      const cell = element("td", {}, digits(line?.mean));
      if (line) {
        cell.dataset.value = line.mean;
        cell.title = `${line.windows} windows, ${digits(line.min)} to ${digits(line.max)}`;
      }
      return cell;
    });
    return element("tr", {}, element("td", { title: row.name }, row.name), ...cells);
  });
  const table = element("table", { id: "values" },
    element("thead", {}, element("tr", {}, element("th", {}, `${sorted.length} rows`), ...heads)),
    element("tbody", {}, ...body));
  document.getElementById("table").replaceChildren(table);
}

const labelled = (text, control) => element("label", {}, text, control);
const options = (id, all) => element("select", { id },
  ...all.map(([value, text]) => element("option", { value }, text)));

function section(title, ...children) {
  const made = element("section", {}, element("h2", {}, title), ...children);
  document.body.append(made);
  return made;
}

function introduce() {
  const { about, windows, findings, missing, warnings, left_out: leftOut } = page.head;
  const spanned = windows.length
    ? `${windows.length} windows in ${windows[windows.length - 1][1].toFixed(1)} s`
    : `${page.samples.samples} samples in ${page.samples.end_s.toFixed(3)} s`;
  const began = new Date(page.head.began * 1000).toISOString().replace("T", " ").slice(0, 19);
  const when = page.head.began ? `from ${began} UTC` : null;
  document.body.append(
    element("h1", {}, page.head.file),
    element("p", { className: "quiet" }, [about.host, about.kernel, when,
      spanned].filter(Boolean).join(" · ")),
    element("p", { className: "quiet" }, about.command ? JSON.parse(about.command).join(" ") : ""));
  const said = findings.map(({ of, text }) => element("li", {}, of ? `${of}: ${text}` : text));
  const wrong = warnings.map((text) => element("li", { className: "wrong" }, text));
  if (leftOut) {
    wrong.push(element("li", { className: "wrong" },
      `${leftOut} rows with the least are not on this page; the file has them`));
  }
  document.body.append(element("ul", { id: "findings" }, ...said, ...wrong));
  if (missing.length) {
    const reasons = missing.map(({ metric, reason }) => element("li", {}, `${metric}: ${reason}`));
    document.body.append(element("details", {},
      element("summary", {}, `${missing.length} metrics have no value`),
      element("ul", {}, ...reasons)));
  }
}

// All panels, each with its function.
function build() {
  const { metrics, lines, histograms } = page.head;
  const redraw = [];
  const search = element("input", { id: "search", type: "search", placeholder: "part of a name" });
  const top = element("input",
    { id: "top", type: "number", min: 1, max: 100, value: controls.top });
  const withLines = metrics.map((metric, at) => [at, metric.name])
    .filter(([at]) => lines.some((line) => line.metric_at === at && line.part !== "share"));
  const metric = options("metric", withLines);
  if (lines.length) {
    section("Over time",
      element("div", { className: "controls" }, labelled("metric", metric),
        labelled("search", search), labelled("largest", top)),
      element("div", { id: "time", className: "plot" }),
      element("p", { id: "time-note", className: "quiet" }));
    metric.onchange = drawTime;
    redraw.push(drawTime);
  }
  if (metrics.some((it) => it.name === "memory_used")) {
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
  waitSections(redraw);
  rooflineSection(redraw);
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
  sampleSection(redraw);
  calibrationSections(redraw);
  samplingSection(redraw);
  const names = { row: "rows", total: "whole machine", socket: "events of sockets",
    place: "sockets and devices", share: "shares of sockets" };
  const parts = Object.entries(names).filter(([part]) => lines.some((line) => line.part === part));
  const part = options("part", parts);
  if (parts.length) {
    section("Means of the windows",
      element("div", { className: "controls" }, labelled("of", part)),
      element("div", { id: "table", className: "scroll" }));
    part.onchange = fillTable;
  }
  const all = async () => {
    for (const one of redraw) await one();
  };
  search.oninput = () => {
    controls.search = search.value;
    fillTable();
    all();
  };
  top.onchange = () => {
    controls.top = Math.max(1, Number(top.value) || 1);
    all();
  };
  return all;
}

async function start() {
  page.head = JSON.parse(await unpacked("head"));
  for (const name of ["samples", "roofline", "calibrations", "sampling"]) {
    page[name] = JSON.parse(await unpacked(`${name}-data`));
  }
  introduce();
  const all = build();
  if (page.head.lines.length) fillTable();
  const library = await unpacked("plotly");
  document.head.append(element("script", {}, library));
  await all();
  document.body.dataset.ready = Math.round(performance.now());
}

function failed(error) {
  document.body.append(element("p", { className: "wrong" },
    `This page cannot be shown: ${error}. It needs a browser of 2023 or later.`));
  throw error;
}
