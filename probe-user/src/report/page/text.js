"use strict";
// Blocks of data, elements, and numbers in the units that people read.

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

const isNarrow = () => document.documentElement.clientWidth < 700;

// Elides the middle of names in plots: the full name is in the table.
function short(text, most = isNarrow() ? 34 : 60) {
  if (text.length <= most) return text;
  const end = Math.floor(most / 2);
  return `${text.slice(0, most - end - 1)}…${text.slice(-end)}`;
}

// A name whose middle is elided by CSS where there is too little space: before its last part, or
// its last characters if that is long.
function nameElement(tag, text, properties = {}) {
  const last = text.search(/(?<=[/ ])[^/ ]{1,24}$/);
  const split = last > 0 ? last : Math.max(0, text.length - 14);
  return element(tag, { className: "name", title: text, ...properties },
    element("span", {}, text.slice(0, split)), element("span", {}, text.slice(split)));
}

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

const PREFIXES = { P: 1e15, T: 1e12, G: 1e9, M: 1e6, k: 1e3, "": 1, m: 1e-3, u: 1e-6, n: 1e-9 };
const NAMES = { CPU: "CPUs", thread: "threads", 1: "", "1/s": "/s" };

// The unit without its prefix, and the factor to it.
function baseUnit(unit) {
  const [, prefix, base] = /^([numkMGT]?)(B\/s|B|s|Hz)$/.exec(unit) ?? [null, "", unit];
  return { name: NAMES[base] ?? base, factor: PREFIXES[prefix], small: base === "s" };
}

// The prefix with which a value has at most three digits before its point, and the factor to it
// from the unit of the metric. Only times have prefixes for small values.
function scaleFor(value, unit) {
  const { name, factor, small } = baseUnit(unit);
  const size = Math.abs(value * factor) * 1.0005;
  const known = Object.entries(PREFIXES).filter(([, one]) => small || one >= 1);
  const fit = known.find(([, one]) => size >= one) ?? (size > 0 ? known.at(-1) : ["", 1]);
  const [prefix, one] = name === "%" ? ["", 1] : fit;
  return { unit: `${prefix === "u" ? "µ" : prefix}${name}`, factor: factor / one };
}

function threeDigits(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const size = Math.abs(value);
  if (size > 0 && size < 0.001) return value < 0 ? ">-0.001" : "<0.001";
  return size >= 100 ? value.toFixed(0) : value === 0 ? "0" : value.toPrecision(3);
}

// A value with its unit.
function amount(value, unit) {
  if (value === null || value === undefined) return "-";
  if (value === 0) return "0";
  const scale = scaleFor(value, unit);
  const space = ["%", ""].includes(scale.unit) ? "" : "\u00a0";
  return `${threeDigits(value * scale.factor)}${space}${scale.unit}`;
}
