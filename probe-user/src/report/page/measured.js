// Panels of several metrics: containers below the peaks of the machine, and estimates with their
// counts.

const logarithmic = (title, more = {}) => ({
  type: "log", title: { text: title, font: { size: 12 } }, exponentformat: "SI", dtick: 1,
  automargin: true, ...more });

const roofName = ({ socket, threads }) =>
  `${socket === null ? "all sockets" : `socket ${socket}`}, ${threads} ${
    threads === 1 ? "thread" : "threads"}`;

async function drawRoofline() {
  const { roofs, points } = page.roofline;
  const roof = roofs[Number(document.getElementById("roof").value)];
  const fit = points.filter(found).sort((a, b) => b.flops - a.flops).slice(0, controls.top);
  const ridge = roof.flops / roof.bytes_per_second;
  const low = Math.min(ridge, ...fit.map((it) => it.flops_per_byte)) / 4;
  const high = Math.max(ridge, ...fit.map((it) => it.flops_per_byte)) * 4;
  const reach = (x, bandwidth) => Math.min(roof.flops, x * bandwidth);
  const line = (name, bandwidth, more) => {
    // Points in between, to have something to hover over.
    const turn = Math.min(Math.max(roof.flops / bandwidth, low), high);
    const parts = (from, to) => [...Array(21).keys()].map((at) => from * (to / from) ** (at / 20));
    const x = [...parts(low, turn), ...parts(turn, high)];
    return { x, y: x.map((it) => reach(it, bandwidth)), name, mode: "lines",
      hovertemplate: "%{y:.4s}FLOP/s at %{x:.3~g} FLOP/B", ...more };
  };
  const rate = (bytes) => `${digits(bytes / 1e9)} GB/s`;
  const caches = roof.levels.filter(({ level }) => level !== "memory");
  const traces = caches.map(({ level, bytes_per_second: best }) =>
    line(`${plain(level)}: ${rate(best)}`, best,
      { line: { width: 1, dash: "dot", color: colour("quiet") } }));
  traces.push(line(`memory: ${rate(roof.bytes_per_second)}`, roof.bytes_per_second,
    { line: { width: 2, color: colour("text") } }));
  fit.forEach((it, at) => traces.push({
    x: [it.flops_per_byte], y: [it.flops], name: plain(short(it.label)), mode: "markers",
    marker: { size: 9, color: PALETTE[at % PALETTE.length] },
    hovertemplate: `%{y:.4s}FLOP/s at %{x:.4~g} FLOP/B, ${
      digits((100 * it.flops) / reach(it.flops_per_byte, roof.bytes_per_second))
    }% of the roof`,
  }));
  const metric = points.length ? points[0].intensity_metric : "";
  await draw("roofline", traces, layout(`${roofName(roof)}: peak ${digits(roof.flops / 1e9)} GFLOP/s`,
    "", { hovermode: "closest", height: 460,
      xaxis: logarithmic(`FLOP/B (${metric})`, { range: [Math.log10(low), Math.log10(high)] }),
      yaxis: logarithmic("FLOP/s") }));
}

function rooflineSection(redraw) {
  if (!page.roofline) {
    // Of interest to who gave the peaks.
    if (page.head.no_roofline && page.head.windows.length) {
      document.body.append(element("p", { id: "no-roofline", className: "quiet" },
        `No roofline: ${page.head.no_roofline}.`));
    }
    return;
  }
  const { roofs, platform, vectors, notes } = page.roofline;
  // The roof of all sockets, else the one of most threads.
  const size = ({ socket, threads }) => threads + (socket === null ? 1e9 : 0);
  const order = roofs.map((roof, at) => [at, roof]).sort((a, b) => size(b[1]) - size(a[1]));
  const roof = options("roof", order.map(([at, it]) => [at, roofName(it)]));
  section("Roofline",
    element("div", { className: "controls" }, labelled("measured with", roof)),
    element("div", { id: "roofline", className: "plot" }),
    element("p", { className: "quiet" }, [`Peaks of ${platform}, ${vectors}, double precision. `
      + "A point is a row over all windows in which it had both values; its bytes are those that "
      + "its core counts, without writes (docs/reference/roofline.md)", ...notes].join(". ")));
  roof.onchange = drawRoofline;
  redraw.push(drawRoofline);
}

async function drawCalibration(at) {
  const { estimate, count, unit, points } = page.calibrations[at];
  const fit = points.filter(found).sort((a, b) => b.count - a.count);
  const shown = fit.slice(0, controls.top);
  const traces = shown.map((it) => ({
    x: [it.count], y: [it.ratio], name: plain(short(it.label)), mode: "markers",
    marker: { size: 8 },
    error_y: it.low === null ? { visible: false } : { type: "data", symmetric: false,
      array: [(it.high - it.estimate) / it.count], thickness: 1.2,
      arrayminus: [(it.estimate - it.low) / it.count] },
    hovertemplate: `estimate ${digits(it.estimate)}${it.low === null ? ""
      : ` (95%: ${digits(it.low)} to ${digits(it.high)})`}<br>count ${digits(it.count)}<br>`
      + `ratio %{y:.4~g}, ${it.windows} windows`,
  }));
  const counts = shown.map((it) => it.count);
  const range = counts.length
    ? [Math.log10(Math.min(...counts)) - 0.3, Math.log10(Math.max(...counts)) + 0.3] : undefined;
  const one = { type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, layer: "below",
    line: { width: 1.5, color: colour("text"), dash: "dash" } };
  // The line is not a trace, so the range must include it.
  const ends = shown.flatMap((it) => [it.ratio,
    ...(it.low === null ? [] : [it.low / it.count, it.high / it.count])]);
  const [low, high] = [Math.min(1, ...ends), Math.max(1, ...ends)];
  const beyond = Math.max(0.02, (high - low) * 0.1);
  await draw(`calibration-${at}`, traces, layout(`${estimate} / ${count}`, "", {
    hovermode: "closest", shapes: [one], height: 360,
    xaxis: logarithmic(unit ? `${count} (${unit})` : count, { range }),
    yaxis: { title: { text: "estimate / count", font: { size: 12 } }, automargin: true,
      range: [low - beyond, high + beyond] } }));
  const known = points.filter((it) => it.low !== null);
  const inside = known.filter((it) => it.low <= it.count && it.count <= it.high);
  const said = known.length
    ? `The count is in the estimate's 95% interval in ${inside.length} of ${known.length} rows. ` : "";
  document.getElementById(`calibration-note-${at}`).textContent =
    `${said}The ${shown.length} largest of ${fit.length} that the search finds.`;
}

function calibrationSections(redraw) {
  page.calibrations.forEach(({ estimate, count }, at) => {
    section(at ? "" : "Estimates and counts",
      element("p", { className: "quiet" }, `${estimate}, estimated, beside ${count}, counted`),
      element("div", { id: `calibration-${at}`, className: "plot" }),
      element("p", { id: `calibration-note-${at}`, className: "quiet" }));
    redraw.push(() => drawCalibration(at));
  });
}
