// Any answer as tables that open: terms whose parts sum, lists of records, plain values.
// In: a value of an answer and its key. Out: elements. Nothing in an answer is left out.

import { make } from "./dom.js";
import { digits, dimensionOf, show, showBetween } from "./units.js";
import { mark, said, words } from "./words.js";

const MOST_ROWS = 200;
// Where a figure comes from.
const ORIGINS = {
  measured: mark("measured"),
  fitted: mark("fitted"),
  derived: mark("derived"),
  datasheet: mark("datasheet"),
  assumed: mark("assumed"),
};

/** A term (name, seconds or bytes, parts) as rows with bars, the parts indented below it. */
export function termTable(term, title) {
  return fold(title, () => {
    const heads = [words("Part"), words("Value"), words("90 % interval"), words("Share"), words("Origin")];
    const head = make(
      "thead",
      {},
      make(
        "tr",
        {},
        heads.map((text) => make("th", { scope: "col" }, text)),
      ),
    );
    const table = make("table", { class: "terms" }, head, make("tbody", {}, termRows(term, term, 0)));
    return scrolled(title, table);
  });
}

const sizeOf = (term) => term.seconds ?? term.bytes;

function termRows(term, whole, depth) {
  const dimension = "seconds" in whole ? "seconds" : "memory";
  const size = sizeOf(term);
  const between = term.low === term.high ? "" : showBetween(term.low, size, term.high, dimension);
  const marks = { class: "number", "data-name": term.name, "data-value": String(size) };
  const row = make(
    "tr",
    { class: `depth-${Math.min(depth, 4)}` },
    make("th", { scope: "row" }, said(term.name)),
    make("td", marks, show(size, dimension)),
    make("td", { class: "number faint" }, between),
    make("td", { class: "bar-cell" }, bar(size / sizeOf(whole))),
    make("td", { class: "faint" }, words(ORIGINS[term.origin] ?? term.origin)),
  );
  const parts = (term.parts ?? []).filter((part) => sizeOf(part) > 0);
  return [row, ...parts.flatMap((part) => termRows(part, whole, depth + 1))];
}

function bar(share) {
  const filled = make("span", { class: "bar" });
  filled.style.width = `${Math.min(100, Math.max(0, share * 100)).toFixed(2)}%`;
  return filled;
}

/** Anything else of an answer, as a definition list that opens. */
export function showAll(value, key = "") {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return scalar(value, key);
  if (typeof value === "boolean") return value ? words("yes") : words("no");
  if (typeof value === "string") return said(value);
  if (Array.isArray(value)) return list(value, key);
  if (isSpread(value)) return spreadText(value, key);
  return make(
    "dl",
    { class: "facts" },
    Object.entries(value).map(([name, one]) =>
      make(
        "div",
        {},
        make("dt", {}, label(name)),
        make(
          "dd",
          { "data-name": name, "data-value": typeof one === "number" ? String(one) : null },
          isDeep(one) ? fold(label(name), () => showAll(one, name), true) : showAll(one, name),
        ),
      ),
    ),
  );
}

/** A list of records as one table: a column a key; [key, title, false] is no number. */
export function table(rows, columns, title) {
  const classOf = (numeric) => (numeric === false ? null : "number");
  const heads = columns.map(([, text, numeric]) =>
    make("th", { scope: "col", class: classOf(numeric) }, text),
  );
  const cell = (value, [key, , numeric], index) => {
    const digits = typeof value === "number" ? String(value) : null;
    const marks = { class: classOf(numeric), "data-name": key, "data-value": digits };
    return index
      ? make("td", marks, cellText(value, key))
      : make("th", { scope: "row", ...marks }, cellText(value, key));
  };
  const lines = rows.slice(0, MOST_ROWS).map((row) =>
    make(
      "tr",
      {},
      columns.map((column, index) => cell(row[column[0]], column, index)),
    ),
  );
  const head = make("thead", {}, make("tr", {}, heads));
  return scrolled(title, make("table", { class: "records" }, head, make("tbody", {}, lines)));
}

/** Something under a heading of its own. */
export function titled(title, ...content) {
  return make("section", { class: "records-section" }, make("h2", {}, title), ...content);
}

/** A table under a heading that names it; what is said of it stands below. */
export function titledTable(title, rows, columns, ...said) {
  return titled(title, table(rows, columns, title), ...said);
}

function cellText(value, key) {
  if (value instanceof Node) return value;
  return typeof value === "object" && value !== null ? short(value, key) : showAll(value, key);
}

const opened = new Set(); // titles that the reader has open: the next answer's open too

/** Something behind a title that opens it; it is made when it is first looked at. */
export function fold(title, content, small = false) {
  const folded = make("details", { class: small ? "fold fold-small" : "fold" }, make("summary", {}, title));
  const fillOnce = () => {
    if (folded.open && folded.childElementCount === 1) folded.append(content());
    if (!small) opened[folded.open ? "add" : "delete"](title);
  };
  folded.addEventListener("toggle", fillOnce);
  if (!small && opened.has(title)) {
    folded.open = true;
    fillOnce();
  }
  return folded;
}

// A wide table scrolls in its own box, which the keyboard can reach.
function scrolled(title, content) {
  return make("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": title }, content);
}

function list(values, key) {
  if (!values.length) return "–";
  if (values.every((one) => typeof one !== "object" || one === null)) {
    return values.length > 8 || (typeof values[0] === "string" && values[0].length > 30)
      ? make(
          "ul",
          {},
          values.slice(0, MOST_ROWS).map((one) => make("li", {}, showAll(one, key))),
        )
      : values.map((one) => (typeof one === "number" ? scalar(one, key) : said(String(one)))).join(", ");
  }
  if (values.every((one) => one && !Array.isArray(one) && !isDeepRecord(one))) {
    const names = [...new Set(values.flatMap((one) => Object.keys(one)))];
    const columns = names.map((name) => [
      name,
      label(name),
      values.some((one) => typeof one[name] === "number" || isSpread(one[name])),
    ]);
    return table(values, columns, label(key));
  }
  return make(
    "ol",
    { class: "deep" },
    values.slice(0, 50).map((one) => make("li", {}, showAll(one, key))),
  );
}

const isSpread = (value) => value !== null && typeof value === "object" && "value" in value && "low" in value;
const isDeep = (value) =>
  value !== null &&
  typeof value === "object" &&
  !isSpread(value) &&
  !(Array.isArray(value) && value.every((one) => typeof one !== "object") && value.length <= 8);
const isDeepRecord = (record) =>
  Object.values(record).some((one) => isDeep(one) && Object.keys(one).length > 6);

function short(value, key) {
  if (isSpread(value)) return spreadText(value, key);
  if (Array.isArray(value))
    return value.map((one) => (typeof one === "object" ? "…" : String(one))).join(", ");
  return Object.entries(value)
    .map(([name, one]) => `${label(name)} ${typeof one === "number" ? scalar(one, name) : one}`)
    .join(", ");
}

function spreadText(value, key) {
  const dimension = dimensionOf(key) ?? "count";
  return `${show(value.value, dimension)} (${showBetween(value.low, value.value, value.high, dimension)})`;
}

function scalar(value, key) {
  const dimension = key === "share" ? "share" : dimensionOf(key);
  if (dimension) return show(value, dimension);
  return Number.isInteger(value) ? value.toLocaleString("en-US") : digits(value);
}

function label(key) {
  return key.replaceAll("_", " ");
}
