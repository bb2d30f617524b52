// Samples of `mem record`: addresses over time, and sums by region, phase or thread.

// Most shaded phases: browsers are slow with more shapes.
const MOST_PHASES = 200;

const COLOUR_BY = {
  region: ["region", (sum) => sum.region],
  source: ["data source", (sum, at) => page.samples.points.source[at]],
  operation: ["operation", (sum, at) => page.samples.points.operation[at]],
};

const SUM_BY = {
  region: ["region", (sum) => sum.region],
  phase: ["phase", (sum) => sum.phase],
  thread: ["thread", (sum) => `${sum.comm ?? "unnamed"} ${sum.pid ?? "?"}/${sum.tid ?? "?"}`],
  cgroup: ["container", (sum) => sum.cgroup],
};

const chosenOf = (id) => document.getElementById(id).value;
const processOf = (sum) => (sum.pid === null ? "unknown" : `process ${sum.pid}`);
const isTag = (region) => region !== null && !region.startsWith("[");

// Applies the filters. Option values have a letter before them, since a name may be anything.
function sampleFilter() {
  const [region, cgroup, process] = ["region", "cgroup", "process"].map((id) =>
    chosenOf(`sample-${id}`));
  return (sum) =>
    (region === "all" || (region === "tags" ? isTag(sum.region) : region === `=${sum.region}`))
    && (cgroup === "all" || cgroup === `=${sum.cgroup}`)
    && (process === "all" || process === processOf(sum));
}

// Names by their number, the largest first.
function byNumber(all, key, number) {
  const sums = new Map();
  for (const one of all) sums.set(key(one), (sums.get(key(one)) || 0) + number(one));
  return [...sums].sort((a, b) => b[1] - a[1]);
}

// Ticks at round hexadecimal numbers.
function addressTicks([low, high]) {
  return { tick0: 0, dtick: 2 ** Math.ceil(Math.log2(Math.max(1, high - low) / 10)) };
}

function pointText(at) {
  const { points, sums } = page.samples;
  const sum = sums[points.sum[at]];
  const latency = points.latency_cycles[at];
  const what = [points.operation[at] ?? "unknown", latency === null ? null : `${latency} cycles`,
    points.source[at] === null ? null : `from ${points.source[at]}`];
  return [`${points.address[at]} (${sum.region ?? "unknown memory"}) at ${points.seconds[at]} s`,
    what.filter(Boolean).join(", "), sum.phase === null ? null : `phase ${sum.phase}`,
    SUM_BY.thread[1](sum)].filter(Boolean).map((line) => plain(short(line, 60))).join("<br>");
}

// Shaded spans of the longest phases, with names where there is space.
function phaseSpans(width, [low, high]) {
  const { phases, end_s: end } = page.samples;
  const process = chosenOf("sample-process");
  const until = (phase) => phase.until_s ?? end;
  const fit = phases.filter((phase) => process === "all" || process === processOf(phase));
  const longest = [...fit].sort((a, b) => (until(b) - b.since_s) - (until(a) - a.since_s));
  const shown = longest.slice(0, MOST_PHASES).sort((a, b) => a.since_s - b.since_s);
  const names = [...new Set(shown.map((phase) => phase.name))];
  const colour = (phase) => PALETTE[(names.indexOf(phase.name) + 7) % PALETTE.length];
  const shapes = shown.map((phase) => ({
    type: "rect", xref: "x", yref: "paper", x0: phase.since_s, x1: until(phase), y0: 0, y1: 1,
    fillcolor: colour(phase), opacity: 0.13, line: { width: 0 }, layer: "below",
  }));
  const pixel = (width - 150) / (high - low || 1);
  let taken = -Infinity;
  const annotations = [];
  for (const phase of shown) {
    const name = phase.name.length > 24 ? `${phase.name.slice(0, 23)}…` : phase.name;
    const from = (Math.max(phase.since_s, low) - low) * pixel;
    const to = (Math.min(until(phase), high) - low) * pixel;
    const needed = 7 * name.length;
    if (to - from < needed || from < taken) continue;
    taken = from + needed;
    annotations.push({ x: Math.max(phase.since_s, low), y: 1, xref: "x", yref: "paper",
      xanchor: "left", yanchor: "bottom", showarrow: false, text: plain(name),
      font: { size: 11, color: colour("quiet") } });
  }
  const open = [...new Set(fit.filter((phase) => phase.until_s === null).map(({ name }) => name))];
  return { shapes, annotations, shown: shown.length, all: fit.length, open };
}

async function drawSamples() {
  const { points, sums, samples, drawn, without_time_or_address: nowhere } = page.samples;
  const wanted = sampleFilter();
  const fits = sums.map(wanted);
  const kept = points.sum.map((sum, at) => at).filter((at) => fits[points.sum[at]]);
  const by = COLOUR_BY[chosenOf("sample-colour")];
  const key = (at) => by[1](sums[points.sum[at]], at) ?? "unknown";
  const keys = byNumber(kept, key, () => 1).map(([name]) => name);
  const rest = keys.length > PALETTE.length ? keys.slice(PALETTE.length - 1) : [];
  const groups = new Map(keys.filter((name) => !rest.includes(name)).map((name) => [name, []]));
  const others = [];
  for (const at of kept) (groups.get(key(at)) ?? others).push(at);
  const trace = (name, all) => ({
    type: "scatter", mode: "markers", name: plain(short(name)), marker: { size: 4, opacity: 0.75 },
    x: all.map((at) => points.seconds[at]), y: all.map((at) => Number(points.address[at])),
    text: all.map(pointText), hovertemplate: "%{text}<extra></extra>",
  });
  const traces = [...groups].map(([name, all]) => trace(name, all));
  if (others.length) traces.push(trace(`${rest.length} others`, others));
  const place = document.getElementById("samples");
  const ends = (values) => values.reduce(([low, high], value) =>
    [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  const addresses = kept.length ? ends(kept.map((at) => Number(points.address[at]))) : [0, 1];
  const times = kept.length ? ends(kept.map((at) => points.seconds[at])) : [0, 1];
  const spans = phaseSpans(place.clientWidth, times);
  const shown = layout(`addresses over time, by ${by[0]}`, "", {
    hovermode: "closest", shapes: spans.shapes, annotations: spans.annotations,
    yaxis: { tickformat: "#x", automargin: true, zeroline: false, ...addressTicks(addresses) },
    height: 520,
  });
  // For the names of phases.
  shown.margin.t += 26;
  shown.legend = { ...shown.legend, itemsizing: "constant" };
  await draw("samples", traces, shown);
  if (!page.ticking) {
    page.ticking = true;
    place.on("plotly_relayout", (change) => {
      if (!Object.keys(change).some((name) => name.startsWith("yaxis.range")
        || name === "yaxis.autorange")) return;
      const { dtick } = addressTicks(place._fullLayout.yaxis.range);
      if (dtick !== place._fullLayout.yaxis.dtick) Plotly.relayout(place, { "yaxis.dtick": dtick });
    });
  }
  const count = (number) => number.toLocaleString("en");
  const sentences = [`${count(kept.length)} points of ${count(samples)} samples`];
  if (drawn + nowhere < samples) {
    sentences.push(`${count(drawn)} of the ${count(samples - nowhere)} with a time and an address `
      + "are on this page, the same ones each time, each as likely as any other");
  }
  if (kept.length < drawn) sentences.push(`${count(drawn - kept.length)} are filtered out`);
  if (nowhere) sentences.push(`${count(nowhere)} have no time or no address`);
  if (spans.all) sentences.push(`${spans.shown} of ${spans.all} phases are shaded`);
  if (spans.open.length) {
    const more = spans.open.length > 3 ? ` and ${spans.open.length - 3} more` : "";
    const names = spans.open.slice(0, 3).map((name) => short(name));
    sentences.push(`open at the end: ${names.join(", ")}${more}`);
  }
  document.getElementById("samples-note").textContent = `${sentences.join("; ")}.`;
  fillSums(wanted);
}

// Sums of all filtered samples, including those that are not drawn.
function fillSums(wanted) {
  const [title, key] = SUM_BY[chosenOf("sample-sums")];
  const rows = new Map();
  const sources = new Set();
  let all = 0;
  for (const sum of page.samples.sums.filter(wanted)) {
    const name = key(sum) ?? "none";
    if (!rows.has(name)) {
      rows.set(name, { name, samples: 0, loads: 0, stores: 0, timed: 0, cycles: 0, sources: {} });
    }
    const row = rows.get(name);
    for (const of of ["samples", "loads", "stores", "timed", "cycles"]) row[of] += sum[of];
    for (const [source, samples] of Object.entries(sum.sources)) {
      row.sources[source] = (row.sources[source] || 0) + samples;
      sources.add(source);
    }
    all += sum.samples;
  }
  const known = (row) => Object.values(row.sources).reduce((a, b) => a + b, 0);
  const share = (part, whole) => (whole ? (100 * part) / whole : null);
  const columns = [
    ["samples", "", (row) => row.samples], ["of all", "%", (row) => share(row.samples, all)],
    ["loads", "", (row) => row.loads], ["stores", "", (row) => row.stores],
    ["mean latency", "cycles", (row) => (row.timed ? row.cycles / row.timed : null)],
    ...[...sources].sort().map((source) =>
      [`from ${source}`, "% of loads", (row) => share(row.sources[source] || 0, known(row))]),
  ];
  const heads = columns.map(([name, unit]) =>
    element("th", {}, name, element("small", {}, unit || "\u00a0")));
  const body = [...rows.values()].sort((a, b) => b.samples - a.samples).map((row) =>
    element("tr", {}, element("td", { title: row.name }, row.name), ...columns.map(([, , value]) => {
      const number = value(row);
      const cell = element("td", {}, Number.isInteger(number) ? String(number) : digits(number));
      if (number !== null) cell.dataset.value = number;
      return cell;
    })));
  document.getElementById("sums").replaceChildren(element("table", { id: "sum-values" },
    element("thead", {}, element("tr", {}, element("th", {}, title), ...heads)),
    element("tbody", {}, ...body)));
}

function sampleSection(redraw) {
  if (!page.samples) return;
  const { sums, file, counts, merged, texts_left_out: texts, phases_left_out: leftOut } =
    page.samples;
  const of = (key) => byNumber(sums, key, (sum) => sum.samples);
  const regions = of((sum) => sum.region);
  const tags = regions.some(([region]) => isTag(region));
  const region = options("sample-region", [...(tags ? [["tags", "tagged memory"]] : []),
    ["all", "all memory"],
    ...regions.map(([name, count]) => [`=${name}`, `${name ?? "unknown"} (${count})`])]);
  const names = new Map(sums.map((sum) => [processOf(sum), sum.comm]));
  const choice = (id, all, key, text) => options(id, [["all", all],
    ...of(key).map(([name]) => text(name))]);
  const cgroup = choice("sample-cgroup", "all containers", (sum) => sum.cgroup,
    (name) => [`=${name}`, short(name ?? "unknown")]);
  const process = choice("sample-process", "all processes", processOf,
    (name) => [name, `${names.get(name) ?? ""} ${name}`]);
  const kinds = (id, all) => options(id, Object.entries(all).map(([name, [text]]) => [name, text]));
  const controls = { "coloured by": kinds("sample-colour", COLOUR_BY), region, container: cgroup,
    process };
  const sumBy = kinds("sample-sums", SUM_BY);
  const lost = Object.entries(counts).map(([name, count]) => element("li", {}, `${name}: ${count}`));
  section(`Sampled accesses${page.head.windows.length ? ` of ${file}` : ""}`,
    element("div", { className: "controls" },
      ...Object.entries(controls).map(([text, control]) => labelled(text, control))),
    element("div", { id: "samples", className: "plot" }),
    element("p", { id: "samples-note", className: "quiet" }),
    element("p", { className: "quiet" }, [
      merged && `${merged} samples are in sums by region alone: there are too many threads.`,
      texts && `${texts} regions and names of samples are shown as unknown: too many differ.`,
      leftOut && `${leftOut} of the shortest phases are not on this page.`,
    ].filter(Boolean).join(" ")),
    element("div", { className: "controls" }, labelled("samples by", sumBy)),
    element("div", { id: "sums", className: "scroll" }),
    ...(lost.length ? [element("details", {}, element("summary", {}, "counts of the recording"),
      element("ul", {}, ...lost))] : []));
  for (const control of [...Object.values(controls), sumBy]) control.onchange = drawSamples;
  if (!tags && regions.length) region.value = `=${regions[0][0]}`;
  redraw.push(drawSamples);
}
