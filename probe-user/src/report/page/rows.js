// What a reader looks at first: the rows by CPU, which of them changed, and findings.

const sorting = { metric: null, down: true };

// The number of points of a small plot.
const SPARK_POINTS = 60;

// The means of so many equal parts of a line, without windows that have no value.
function thinned(line, windows) {
  const parts = Math.min(SPARK_POINTS, windows);
  const sums = Array.from({ length: parts }, () => [0, 0]);
  line.y.forEach((value, at) => {
    if (value === null) return;
    const part = sums[Math.floor(((line.first + at) * parts) / windows)];
    part[0] += value;
    part[1] += 1;
  });
  return sums.map(([sum, count]) => (count ? sum / count : null));
}

// A line over time as a small picture, from 0 to its own largest value.
function sparkline(line) {
  const [width, height] = [96, 18];
  const made = (tag, properties) => {
    const one = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(properties)) one.setAttribute(name, value);
    return one;
  };
  const picture = made("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "spark" });
  const values = thinned(line, page.head.windows.length);
  const most = Math.max(...values, 0);
  const x = (at) => (values.length > 1 ? (at * width) / (values.length - 1) : width / 2);
  const y = (value) => 1 + (height - 2) * (1 - (most ? value / most : 0));
  let path = "";
  values.forEach((value, at) => {
    if (value === null) return;
    const first = at === 0 || values[at - 1] === null;
    path += `${first ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    // A value beside none is a dash.
    if (first && (values[at + 1] ?? null) === null) path += "h2";
  });
  picture.append(made("path", { d: path }));
  return picture;
}

// Draws the small plots of the sorted metric into their cells, which are there before.
async function fillSparklines(metric, cells) {
  for (const line of await valuesOf(metric)) {
    cells.get(page.head.lines[line.line])?.replaceChildren(sparkline(line));
  }
}

// What a table may show: a name, and its lines. Waits have a plot of their own.
const PARTS = {
  row: ["rows", ({ part, of }) => part === "row" && !of],
  operation: ["rows by operation",
    ({ part, of, metric }) => part === "row" && of && metric !== WAITED_BEHIND],
  total: ["whole machine", ({ part }) => part === "total"],
  socket: ["events of sockets", ({ part }) => part === "socket"],
  place: ["sockets and devices", ({ part }) => part === "place"],
  share: ["shares of sockets", ({ part }) => part === "share"],
};

// One row for each subject and operation: the means of its windows.
function fillTable() {
  const [, isOfPart] = PARTS[document.getElementById("part").value];
  const lines = withoutRest(page.head.lines.filter(isOfPart));
  const first = (at) => (at === page.head.ordered_by ? -1 : at);
  const columns = [...new Set(lines.map((line) => line.metric_at))]
    .filter((at) => !page.head.metrics[at].hidden)
    .sort((a, b) => first(a) - first(b));
  const by = columns.includes(sorting.metric) ? sorting.metric : columns[0];
  const rows = new Map();
  for (const line of lines.filter(found)) {
    const key = `${line.holder} ${line.of || ""}`;
    if (!rows.has(key)) rows.set(key, { name: nameOf(line), line, values: new Map() });
    rows.get(key).values.set(line.metric_at, line);
  }
  const of = (row) => row.values.get(by)?.mean ?? -Infinity;
  const sorted = [...rows.values()].sort((a, b) => (sorting.down ? of(b) - of(a) : of(a) - of(b)));
  const most = (at) =>
    Math.max(0, ...sorted.map((row) => Math.abs(row.values.get(at)?.mean ?? 0)));
  const scales = new Map(columns.map((at) => [at, scaleFor(most(at), page.head.metrics[at].unit)]));
  const heads = columns.map((at) => {
    const { name, help } = page.head.metrics[at];
    const unit = scales.get(at).unit || "\u00a0";
    const head = element("th", { title: help }, name, element("small", {}, unit));
    if (at === by) head.ariaSort = sorting.down ? "descending" : "ascending";
    head.onclick = () => {
      sorting.down = at === by ? !sorting.down : true;
      sorting.metric = at;
      fillTable();
    };
    return head;
  });
  const sparks = new Map();
  const largestOf = most(by);
  const body = sorted.map((row) => {
    const cells = columns.map((at) => {
      const line = row.values.get(at);
      const cell = element("td", {}, threeDigits(line && line.mean * scales.get(at).factor));
      if (!line) return cell;
      cell.dataset.value = line.mean;
      cell.title = `mean ${amount(line.mean, line.unit)}, in ${line.windows} windows `
        + `${amount(line.min, line.unit)} to ${amount(line.max, line.unit)}`;
      if (at === by && largestOf > 0) {
        const share = Math.round((100 * Math.abs(line.mean)) / largestOf);
        cell.className = "bar";
        cell.style.setProperty("--share", `${share}%`);
      }
      return cell;
    });
    const spark = element("td", { className: "spark" });
    if (row.values.has(by)) sparks.set(row.values.get(by), spark);
    const name = nameElement("button", row.name, { onclick: () => searchFor(row.line.label) });
    return element("tr", {}, element("td", {}, name), spark, ...cells);
  });
  const overTime = element("th", { className: "spark", title: "each from 0 to its own maximum" },
    "over time", element("small", {}, page.head.metrics[by].name));
  const count = sorted.length === 1 ? "1 row" : `${sorted.length} rows`;
  const table = element("table", { id: "values" },
    element("thead", {}, element("tr", {}, element("th", {}, count), overTime, ...heads)),
    element("tbody", {}, ...body));
  document.getElementById("table").replaceChildren(table);
  fillSparklines(by, sparks).catch(failed);
}

function rowsSection() {
  const { lines, metrics, ordered_by: by } = page.head;
  const parts = Object.entries(PARTS).filter(([, [, isOfPart]]) => lines.some(isOfPart));
  const part = options("part", parts.map(([name, [text]]) => [name, text]));
  const first = lines.some((line) => PARTS.row[1](line) && line.metric_at === by);
  const title = first ? `Rows by ${metrics[by].name}` : "Values";
  section(title,
    element("div", { className: "controls" }, labelled("means of", part)),
    element("div", { id: "table", className: "scroll" }));
  part.onchange = fillTable;
}

// A change as a factor, or in percent.
function changeText(from, to) {
  if (!(from > 0 && to > 0)) return "";
  if (to >= 2 * from) return `, ${threeDigits(to / from)} times`;
  const percent = Math.round(100 * (to / from - 1));
  return percent > 0 ? `, +${percent}%` : `, -${-percent}%`;
}

function changesSection() {
  const { at_s: middle, number, shown, started, ended } = page.head.changes;
  const items = shown.map(({ label, of, metric, unit, from, to }) => {
    const name = nameElement("button", label, { onclick: () => show(metric, label) });
    return element("li", {}, name, ` ${metric}${of ? `, ${of}` : ""}: `,
      `${amount(from, unit)} → ${amount(to, unit)}${changeText(from, to)}`);
  });
  const more = number > shown.length ? [`${number - shown.length} more`] : [];
  const names = (all, when) => {
    const others = all.length > 5 ? ` and ${all.length - 5} more` : "";
    return all.length ? [`${when}: ${all.slice(0, 5).join(", ")}${others}`] : [];
  };
  const rest = [...more, ...names(started, "only in the second half"),
    ...names(ended, "only in the first half")].map((text) => element("li", {}, text));
  if (!items.length && !rest.length) return [];
  return [element("div", { id: "changes" },
    element("h2", {}, `Changed in the second half, after ${middle.toFixed(0)} s`),
    element("ul", {}, ...items, ...rest))];
}

function findingsSection() {
  const items = page.head.findings.map(({ of, text }) => element("li", {},
    ...(of ? [nameElement("button", of, { onclick: () => searchFor(of) }), ": "] : []), text));
  if (!items.length) return [];
  return [element("div", { id: "findings" }, element("h2", {}, "Findings"),
    element("ul", {}, ...items))];
}

function newsSection() {
  const parts = [...(page.head.changes ? changesSection() : []), ...findingsSection()];
  if (parts.length) document.body.append(element("section", { className: "news" }, ...parts));
}
