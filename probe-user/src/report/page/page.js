// The page of a recording: its state, its controls and its sections.

const nameOf = (line) => (line.of ? `${line.label}, ${line.of}` : line.label);
const page = { head: null, drawn: {}, samples: null, roofline: null, calibrations: [],
  sampling: null, redraw: async () => {} };
const cache = new Map();

// The lines of a metric with their values over time.
function valuesOf(metric) {
  if (!cache.has(metric)) {
    cache.set(metric, unpacked(`metric-${metric}`).then((text) => JSON.parse(text)));
  }
  return cache.get(metric);
}

const controls = { search: "", top: 10, rest: false };

const found = (line) => {
  const wanted = controls.search.toLowerCase();
  return [line.label, line.name].some((name) => name.toLowerCase().includes(wanted));
};

// Lines without those of the rest of the machine, which would set the scale; these if there are no
// others.
function withoutRest(lines) {
  const own = lines.filter(({ rest }) => !rest);
  return controls.rest || !own.length ? lines : own;
}

// The largest lines of a metric that match the search.
async function chosen(metric, wanted, by = "mean") {
  const values = await valuesOf(metric);
  const lines = new Map(values.map((it) => [page.head.lines[it.line], it]));
  const fit = withoutRest([...lines.keys()].filter(wanted)).filter(found);
  fit.sort((a, b) => b[by] - a[by]);
  const largest = fit.slice(0, controls.top).map((about) => ({ ...lines.get(about), about }));
  return { all: fit.length, lines: largest };
}

// Colours of the style sheet, which follow the reader's colour scheme.
const colour = (name) => getComputedStyle(document.documentElement)
  .getPropertyValue(`--${name}`).trim();

const PALETTE = ["#4a7fd6", "#e8710a", "#2e9e6b", "#d6485d", "#8b6fd8", "#a0804a", "#d86fb0",
  "#7b8896", "#a8a11f", "#1aa3b8"];

function layout(title, unit, more = {}) {
  const narrow = isNarrow();
  const [text, grid] = [colour("text"), colour("line")];
  const made = {
    height: 430, margin: { l: 50, r: 16, t: 30, b: 44 }, colorway: PALETTE,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: text },
    title: { text: plain(unit ? `${title} (${unit})` : title), font: { size: 13 }, x: 0.01 },
    xaxis: { title: { text: "seconds since the beginning", font: { size: 12 } } },
    yaxis: { rangemode: "tozero", exponentformat: "SI" },
    hovermode: narrow ? "closest" : "x", hoverlabel: { namelength: -1, font: { size: 11 } },
    legend: narrow ? { orientation: "h", yref: "container", y: 0, yanchor: "bottom",
      font: { size: 11 } } : { font: { size: 11 } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("quiet"), activecolor: text },
    showlegend: true, ...more,
  };
  for (const axis of ["xaxis", "yaxis"]) {
    made[axis] = { automargin: true, gridcolor: grid, zerolinecolor: grid, ...made[axis] };
  }
  return made;
}

function draw(id, traces, shown) {
  const place = document.getElementById(id);
  page.drawn[id] = traces.length;
  // The legend of a narrow page is below the plot, a line for each entry.
  if (isNarrow() && shown.showlegend) shown.height = 300 + 19 * traces.length;
  return Plotly.react(place, traces, shown, { responsive: true, displaylogo: false,
    displayModeBar: isNarrow() ? false : "hover",
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]] });
}

function searchFor(text) {
  const search = document.getElementById("search");
  search.value = controls.search === text ? "" : text;
  search.oninput();
}

// Draws this metric of this row.
function show(metric, label) {
  const select = document.getElementById("metric");
  select.value = page.head.metrics.findIndex((it) => it.name === metric);
  if (controls.search !== label) searchFor(label);
  else select.onchange();
  document.getElementById("time").scrollIntoView({ block: "center" });
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
  const { about, windows, warnings, left_out: leftOut } = page.head;
  const spanned = windows.length
    ? `${windows.length} windows in ${windows[windows.length - 1][1].toFixed(1)} s`
    : `${page.samples.samples} samples in ${page.samples.end_s.toFixed(3)} s`;
  const began = new Date(page.head.began * 1000).toISOString().replace("T", " ").slice(0, 19);
  const when = page.head.began ? `from ${began} UTC` : null;
  const notes = warnings.map((text) => element("li", { className: "wrong" }, text));
  if (leftOut) {
    notes.push(element("li", {}, `${leftOut} rows are not on this page; the file has them`));
  }
  document.body.append(
    element("h1", {}, page.head.file),
    element("p", { className: "quiet" }, [about.host, about.kernel, when,
      spanned].filter(Boolean).join(" · ")),
    element("p", { className: "quiet" }, about.command ? JSON.parse(about.command).join(" ") : ""),
    ...(notes.length ? [element("ul", { id: "notes" }, ...notes)] : []));
}

// What chooses the rows of all sections.
function controlBar() {
  const search = element("input", { id: "search", type: "search", placeholder: "part of a name" });
  const top = element("input",
    { id: "top", type: "number", min: 1, max: 100, value: controls.top });
  const rest = element("input", { id: "rest", type: "checkbox" });
  const bar = element("div", { className: "controls top" }, labelled("search", search),
    labelled("largest", top));
  const { lines } = page.head;
  if (lines.some((line) => line.rest) && lines.some((line) => !line.rest)) {
    bar.append(element("label", {}, rest, "system, idle and total"));
  }
  search.oninput = () => {
    controls.search = search.value;
    fillTable();
    return page.redraw();
  };
  top.onchange = () => {
    controls.top = Math.max(1, Number(top.value) || 1);
    return page.redraw();
  };
  rest.onchange = () => {
    controls.rest = rest.checked;
    fillTable();
    return page.redraw();
  };
  document.body.append(bar);
}

function missingSection() {
  const { missing } = page.head;
  if (!missing.length) return;
  const reasons = missing.map(({ metric, reason }) => element("li", {}, `${metric}: ${reason}`));
  document.body.append(element("details", {},
    element("summary", {}, `${missing.length} metrics have no value`),
    element("ul", {}, ...reasons)));
}

// All sections. Returns the functions that draw their plots.
function build() {
  const redraw = [];
  if (page.head.lines.length) {
    controlBar();
    rowsSection();
    newsSection();
  }
  timeSections(redraw);
  waitSections(redraw);
  rooflineSection(redraw);
  accessSections(redraw);
  sampleSection(redraw);
  calibrationSections(redraw);
  samplingSection(redraw);
  missingSection();
  return redraw;
}

async function start() {
  page.head = JSON.parse(await unpacked("head"));
  for (const name of ["samples", "roofline", "calibrations", "sampling"]) {
    page[name] = JSON.parse(await unpacked(`${name}-data`));
  }
  introduce();
  const redraw = build();
  if (page.head.lines.length) fillTable();
  const library = await unpacked("plotly");
  document.head.append(element("script", {}, library));
  page.redraw = async () => {
    for (const one of redraw) await one();
  };
  const schemes = matchMedia("(prefers-color-scheme: dark)");
  schemes.onchange = () => page.redraw();
  await page.redraw();
  document.body.dataset.ready = Math.round(performance.now());
}

function failed(error) {
  document.body.append(element("p", { className: "wrong" },
    `This page cannot be shown: ${error}. It needs a browser of 2023 or later.`));
  throw error;
}
