// The fair table of chips: dense or sparse, of one chip, a dollar or a watt; each figure with its source.
// In: "chips" of compare. Out: a table that sorts by its headings and filters by name.

/* global d3 */
import { fill, make } from "../dom.js";
import { digits } from "../units.js";
import { choice, hideTip, showTip } from "./drawn.js";

const TERA = 1e12;
const COLUMNS = [
  ["memory", "GiB", 2 ** 30, (chip) => chip.memory_bytes, "memory.capacity"],
  ["bandwidth", "TB/s", TERA, (chip) => chip.memory_bytes_per_second, "memory.bandwidth"],
  ...["fp32", "tf32", "bf16", "fp8", "int8", "fp4"].map((dtype) => [
    dtype,
    dtype === "int8" ? "TOP/s" : "TFLOP/s",
    TERA,
    (chip) => chip.dense_flop_per_second[dtype],
    `peak.${dtype}`,
  ]),
  ["link", "GB/s", 1e9, (chip) => chip.link_bytes_per_second, "links.scale_up_bandwidth"],
  ["power", "W", 1, (chip) => chip.power_watts, "power.tdp"],
  ["price", "$/h", 1, (chip) => chip.price_usd_per_hour, "price"],
];
const SPARSE = new Set(["tf32", "bf16", "fp8", "int8", "fp4"]); // formats of the matrix engine
const WHOLE = new Set(["power", "price"]); // never divided by themselves
const settings = new WeakMap(); // element -> how its reader has set it

export function draw(element, answer, { words }) {
  const set = settings.get(element) ?? { sparse: "dense", per: "chip", by: null, down: true, filter: "" };
  settings.set(element, set);
  const body = make("div", { class: "chips-table" });
  const again = () => fill(body, table(answer.chips, set, words, again));
  const filter = make("input", {
    type: "text",
    value: set.filter,
    placeholder: words("filter by name or vendor"),
    "aria-label": words("filter by name or vendor"),
    oninput: () => {
      set.filter = filter.value;
      again();
    },
  });
  const choices = (name, key, options) => {
    const place = make("span");
    const show = () =>
      fill(
        place,
        choice(name, options, set[key], (value) => {
          set[key] = value;
          show();
          again();
        }),
      );
    show();
    return place;
  };
  fill(
    element,
    make(
      "div",
      { class: "picture-tools" },
      filter,
      choices(words("Peaks"), "sparse", [
        ["dense", words("dense")],
        ["sparse", words("sparse 2:4")],
      ]),
      choices(words("Of what"), "per", [
        ["chip", words("per chip")],
        ["usd", words("per dollar an hour")],
        ["watt", words("per watt")],
      ]),
    ),
    body,
    make(
      "p",
      { class: "hint" },
      words(
        "Per device as software sees it. ✕ no such path, · not known, * not confirmed. Each figure names its source.",
      ),
    ),
  );
  again();
}

function table(chips, set, words, again) {
  const found = chips.filter((chip) =>
    `${chip.name} ${chip.vendor}`.toLowerCase().includes(set.filter.trim().toLowerCase()),
  );
  const columns = COLUMNS.filter(([name]) => chips.some((chip) => valueOf(chip, name, set)?.value));
  if (set.by) {
    const key =
      set.by === "name"
        ? (chip) => chip.name
        : set.by === "year"
          ? (chip) => chip.year
          : (chip) => valueOf(chip, set.by, set)?.value;
    found.sort((a, b) => {
      const [left, right] = [key(a), key(b)];
      if (!left || !right) return (left ? 0 : 1) - (right ? 0 : 1); // the unknown last, either way
      return (set.down ? -1 : 1) * d3.ascending(left, right);
    });
  }
  const most = new Map(columns.map(([name]) => [name, d3.max(found, (chip) => valueOf(chip, name, set)?.value)]));
  const head = (name, text, unit) => {
    const on = set.by === name;
    return make(
      "th",
      { scope: "col", "aria-sort": on ? (set.down ? "descending" : "ascending") : "none" },
      make(
        "button",
        {
          type: "button",
          class: "sort",
          onclick: () => {
            set.down = on ? !set.down : name !== "name" && name !== "price" && name !== "power";
            set.by = name;
            again();
          },
        },
        text,
        make("span", { class: "sort-sign", "aria-hidden": "true" }, on ? (set.down ? " ↓" : " ↑") : ""),
      ),
      unit ? make("small", {}, unit) : null,
    );
  };
  const per = { chip: "", usd: words(" a $/h"), watt: words(" a W") }[set.per];
  return make(
    "table",
    { class: "chips" },
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        head("name", words("Chip")),
        head("year", words("Year")),
        columns.map(([name, unit]) => head(name, words(name), WHOLE.has(name) ? unit : unit + per)),
      ),
    ),
    make(
      "tbody",
      {},
      found.map((chip) =>
        make(
          "tr",
          {},
          make("th", { scope: "row" }, chip.name),
          make("td", {}, String(chip.year)),
          columns.map(([name, , size, , path]) =>
            cell(chip, name, size, path, valueOf(chip, name, set), most.get(name), words),
          ),
        ),
      ),
    ),
  );
}

function valueOf(chip, name, set) {
  const [, , , given] = COLUMNS.find(([column]) => column === name);
  const value = given(chip);
  if (value === null || value === undefined)
    return { value: null, none: value === null && name in chip.dense_flop_per_second };
  const sparse = set.sparse === "sparse" && SPARSE.has(name) ? chip.sparse_factor : 1;
  const over =
    WHOLE.has(name) || set.per === "chip" ? 1 : set.per === "usd" ? chip.price_usd_per_hour : chip.power_watts;
  return { value: over ? (value * sparse) / over : null, none: false };
}

function cell(chip, name, size, path, { value, none }, most, words) {
  if (value === null) return make("td", { class: "unknown" }, none ? "✕" : "·");
  const source = chip.sources?.[path];
  const doubtful = chip.unconfirmed?.includes(path);
  const text = `${name === "price" ? value.toFixed(2) : digits(value / size)}${doubtful ? "*" : ""}`;
  const figure = make(
    "button",
    { type: "button", class: "figure", "data-name": `${chip.name}.${name}`, "data-value": String(value) },
    text,
  );
  const open = () =>
    showTip(figure.getBoundingClientRect(), [
      `${chip.name}, ${words(name)}`,
      source ?? words("no source given"),
      doubtful ? words("not confirmed") : null,
    ]);
  for (const event of ["pointerenter", "focus", "click"]) figure.addEventListener(event, open);
  for (const event of ["pointerleave", "blur"]) figure.addEventListener(event, hideTip);
  const bar = make("span", { class: "cell-bar", "aria-hidden": "true" });
  bar.style.width = `${(100 * value) / most}%`;
  return make("td", {}, figure, bar);
}
