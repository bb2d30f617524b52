// Results of `mem calibrate`: accuracy and cost of sampling, by setting.

// What is drawn of a setting, and the value that the range always includes.
const SAMPLING = { accuracy: ["accuracy", 100], overhead: ["time overhead", 0] };

const percent = ({ mean, deviation }) => `${digits(100 * mean)}% ± ${digits(100 * deviation)}`;

function settingText({ period, aux_bytes: aux, threads, accuracy, overhead, samples, collisions,
  truncated, lost }) {
  return [`period ${period}, buffer ${aux / 1024} KiB${threads === null ? "" : `, ${threads} threads`}`,
    `accuracy ${percent(accuracy)}, time overhead ${percent(overhead)}`,
    `${digits(samples.mean)} samples a run; buffers with collisions ${digits(collisions.mean)}, `
      + `truncated ${digits(truncated.mean)}; records lost ${digits(lost.mean)}`].join("<br>");
}

async function drawSampling(sweep, what) {
  const { over, settings: places, names } = page.sampling.sweeps[sweep];
  const [title, always] = SAMPLING[what];
  const shown = places.map((at) => page.sampling.settings[at]);
  const y = shown.map((it) => 100 * it[what].mean);
  const bars = shown.map((it) => 100 * it[what].deviation);
  const recommended = places.map((at) => at === page.sampling.recommended);
  const ends = y.flatMap((value, at) => [value - bars[at], value + bars[at]]);
  const [low, high] = [Math.min(always, ...ends), Math.max(always, ...ends)];
  const beyond = Math.max(0.1, (high - low) * 0.08);
  const trace = { x: names, y, mode: "lines+markers", name: title, line: { width: 1.5, color: PALETTE[0] },
    error_y: { type: "data", array: bars, thickness: 1.2, color: PALETTE[0] }, text: shown.map(settingText),
    marker: { size: recommended.map((is) => (is ? 13 : 8)), opacity: 1,
      symbol: recommended.map((is) => (is ? "star" : "circle")),
      color: recommended.map((is) => PALETTE[is ? 1 : 0]) },
    hovertemplate: "%{text}<extra></extra>" };
  const line = { type: "line", xref: "paper", x0: 0, x1: 1, y0: always, y1: always, layer: "below",
    line: { width: 1.5, color: colour("text"), dash: "dash" } };
  const small = { size: 12 };
  await draw(`sampling-${what}-${sweep}`, [trace], layout(`${title} over ${over}`, "%", {
    height: 300, showlegend: false, hovermode: "closest", shapes: [line],
    // As categories: settings are few, and their steps are the user's choice.
    xaxis: { type: "category", automargin: true, title: { text: over, font: small } },
    yaxis: { range: [low - beyond, high + beyond], automargin: true, ticksuffix: "%" } }));
}

function samplingSection(redraw) {
  if (!page.sampling) return;
  const { about, platform, runs, recommendation, sweeps, unsampled, settings } = page.sampling;
  const of = about.command ? JSON.parse(about.command).join(" ") : "mem calibrate";
  const base = unsampled.map(({ threads, seconds, mem_access: counted }) =>
    `${threads === null ? "" : `${threads} threads: `}${digits(seconds.mean)} s ± ${
      digits(seconds.deviation)}, ${digits(counted.mean)} loads and stores`).join("; ");
  section("Calibration of sampling",
    element("p", { className: "quiet" }, `${of} on ${[about.host, platform].filter(Boolean).join(", ")}. `
      + `${runs} runs of each setting, bars are their standard deviation. Without sampling: ${base}`),
    ...sweeps.map((_, at) => element("div", { className: "pair" }, ...Object.keys(SAMPLING).map(
      (what) => element("div", { id: `sampling-${what}-${at}`, className: "plot" })))),
    element("p", { id: "sampling-note", className: "quiet" }, sweeps.length ? recommendation
      : `One setting was tried: ${settingText(settings[0]).replace(/<br>/g, "; ")}`));
  sweeps.forEach((_, at) => Object.keys(SAMPLING).forEach((what) =>
    redraw.push(() => drawSampling(at, what))));
}
