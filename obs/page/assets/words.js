"use strict";

// Elements and words. Whatever comes from outside becomes text nodes and attributes only.

const el = (tag, props = {}, ...inside) => fill(document.createElement(tag), props, inside);
const svg = (tag, props = {}, ...inside) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, inside);
const by = (id) => document.getElementById(id);

function fill(x, props, inside) {
  for (const [name, value] of Object.entries(props)) x.setAttribute(name, value);
  for (const y of inside) if (y !== null && y !== undefined && y !== "") x.append(y);
  return x;
}

const grouped = new Intl.NumberFormat("en-US");
const number = (n) => grouped.format(n);

// large is a count in a small place: 1,204 or 1.2 M.
function large(n) {
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (n >= unit) {
      const x = n / (name === "k" ? 1e3 : unit);
      return (x >= 100 ? x.toFixed(0) : x.toFixed(1)) + " " + name;
    }
  }
  return number(n);
}

function size(n) {
  if (n < 1024) return n + " B";
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    n /= 1024;
    if (n < 1024 || unit === "TiB") return (n < 10 ? n.toFixed(1) : n.toFixed(0)) + " " + unit;
  }
}

function span(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return (seconds * 1e6).toFixed(0) + " µs";
  if (seconds < 1) return (seconds * 1e3).toPrecision(seconds < 0.1 ? 2 : 3) + " ms";
  if (seconds < 60) return seconds.toFixed(1) + " s";
  const m = Math.floor(seconds / 60);
  const two = (a, unit, b, below) => a + " " + unit + (b ? " " + b + " " + below : "");
  if (m < 60) return two(m, "min", Math.floor(seconds % 60), "s");
  if (m < 48 * 60) return two(Math.floor(m / 60), "h", m % 60, "min");
  return two(Math.floor(m / 1440), "days", Math.floor((m % 1440) / 60), "h");
}

// rough is the bound of a span, in one word.
const rough = (s) => (s < 3600 ? Math.ceil(s / 60) + " min" : s < 48 * 3600 ? Math.ceil(s / 3600) + " h" : Math.ceil(s / 86400) + " days");

// clock is a report's time, or now.
let clock = () => Date.now();

function ago(ms) {
  if (!ms) return "not known";
  const m = Math.floor((clock() - ms) / 60000);
  if (m < 2) return "just now";
  if (m < 120) return m + " min ago";
  if (m < 48 * 60) return Math.floor(m / 60) + " h ago";
  return Math.floor(m / 1440) + " days ago";
}

// when is the time of day, and the day if that is another.
function when(ms) {
  const at = new Date(ms);
  const far = clock() - ms > 18 * 3600 * 1000;
  return (far ? at.toLocaleDateString([], { day: "numeric", month: "short" }) + ", " : "") + at.toLocaleTimeString([], { hour12: false });
}

// day is a date.
const day = (ms) => new Date(ms).toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" });

const times = (n) => (n === 0 ? "never" : n === 1 ? "once" : number(n) + " times");

const share = (part, whole) => (whole > 0 ? (100 * part) / whole : 0);

function percent(part, whole) {
  if (!whole) return "–";
  const p = share(part, whole);
  return (p > 0 && p < 1 ? "<1" : p < 100 && p > 99 ? ">99" : p.toFixed(0)) + "\u00a0%";
}

const count = (n, what) => (n === 1 ? "1 " + what : number(n) + " " + what + "s");
