// SI values as text, as src/trueflops/units.py writes them: three digits and the unit that suits.
// In: a number and its dimension. Out: "66.7 s", "$1.30 M", "44.6 %".

import { mark, words } from "./words.js";

const DAY = 86400;
const SCALES = {
  bytes: [
    ["TB", 1e12],
    ["GB", 1e9],
    ["MB", 1e6],
    ["kB", 1e3],
    ["B", 1],
  ],
  memory: [
    ["TiB", 2 ** 40],
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
    ["B", 1],
  ],
  bytes_per_second: [
    ["TB/s", 1e12],
    ["GB/s", 1e9],
    ["MB/s", 1e6],
    ["kB/s", 1e3],
    ["B/s", 1],
  ],
  flop: [
    ["EFLOP", 1e18],
    ["PFLOP", 1e15],
    ["TFLOP", 1e12],
    ["GFLOP", 1e9],
    ["MFLOP", 1e6],
  ],
  flop_per_second: [
    ["TFLOP/s", 1e12],
    ["GFLOP/s", 1e9],
    ["MFLOP/s", 1e6],
  ],
  seconds: [
    [mark("years"), 365 * DAY],
    [mark("days"), DAY],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
    ["ms", 1e-3],
    ["µs", 1e-6],
    ["ns", 1e-9],
  ],
  hertz: [
    ["GHz", 1e9],
    ["MHz", 1e6],
    ["Hz", 1],
  ],
  watts: [
    ["MW", 1e6],
    ["kW", 1e3],
    ["W", 1],
  ],
  joules: [
    ["GWh", 3.6e12],
    ["MWh", 3.6e9],
    ["kWh", 3.6e6],
    ["kJ", 1e3],
    ["J", 1],
    ["mJ", 1e-3],
    ["pJ", 1e-12],
  ],
  count: [
    ["T", 1e12],
    ["B", 1e9],
    ["M", 1e6],
    ["k", 1e3],
    ["", 1],
  ],
};
// Below these a smaller unit reads better: "36 h", not "1.5 days".
const SHOW_FROM = { years: 2, days: 2, h: 2, min: 2 };

/** Three significant digits without an exponent: 989, 67.2, 3.35, 1,979. */
export function digits(value) {
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return "∞";
  const magnitude = Math.floor(Math.log10(Math.abs(value)) + 1e-12);
  if (magnitude < -3) return value.toExponential(2);
  const places = Math.max(0, 2 - magnitude);
  return format(places).format(value);
}

const formats = []; // by places: making one takes longer than a hundred uses of it
function format(places) {
  formats[places] ??= new Intl.NumberFormat("en-US", {
    minimumFractionDigits: places,
    maximumFractionDigits: places,
  });
  return formats[places];
}

/** A value in the unit that suits it. */
export function show(value, dimension) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const { before, size, unit } = scale(value, dimension);
  if (dimension === "whole") return Math.round(value).toLocaleString("en-US");
  return `${before}${figures(value / size, before)}${unit}`;
}

/** An interval in the unit that suits the value: "50.2 – 88.6 s". */
export function showBetween(low, value, high, dimension) {
  const { before, size, unit } = scale(value, dimension);
  return `${before}${figures(low / size, before)} – ${figures(high / size, before)}${unit}`;
}

function scale(value, dimension) {
  if (dimension === "share") return { before: "", size: 0.01, unit: " %" };
  if (dimension === "whole") return { before: "", size: 1, unit: "" };
  if (dimension === "usd" || dimension === "usd_per_hour") {
    const per = dimension === "usd_per_hour" ? "/h" : "";
    const [size, suffix] =
      Math.abs(value) >= 1e9 ? [1e9, " B"] : Math.abs(value) >= 1e6 ? [1e6, " M"] : [1, ""];
    return { before: "$", size, unit: suffix + per };
  }
  const sizes = SCALES[dimension];
  const [unit, size] =
    sizes.find(([u, s]) => Math.abs(value) >= s * (SHOW_FROM[u] ?? 0.9995)) ?? sizes[sizes.length - 1];
  return { before: "", size, unit: unit ? ` ${words(unit)}` : "" };
}

function figures(value, before) {
  if (before === "$" && Math.abs(value) >= 0.1 && Math.abs(value) < 1000) return value.toFixed(2);
  return digits(value);
}

// How a key of an answer ends says what it counts; the longest that fits is meant.
const ENDINGS = [
  ["flop_per_second", "flop_per_second"],
  ["bytes_per_second", "bytes_per_second"],
  ["tokens_per_second", "count"],
  ["requests_per_second", "count"],
  ["usd_per_hour", "usd_per_hour"],
  ["_usd", "usd"],
  ["usd_per_million_tokens", "usd"],
  ["seconds", "seconds"],
  ["sends_bytes", "bytes"],
  ["payload_bytes", "bytes"],
  ["bytes", "memory"],
  ["flop", "flop"],
  ["watts", "watts"],
  ["_share", "share"],
  ["share_of_datasheet", "share"],
  ["hertz", "hertz"],
];

/** The dimension that a key names, or null. */
export function dimensionOf(key) {
  return ENDINGS.find(([ending]) => key.endsWith(ending))?.[1] ?? null;
}
