// Two to four scenarios side by side. In: pinned questions and their answers. Out: a table that
// names what is asked differently, then each figure with how far it is from the first.

import { post } from "./api.js";
import { make } from "./dom.js";
import { figures } from "./headline.js";
import { body } from "./state.js";
import { digits, show, showBetween } from "./units.js";
import { said, words } from "./words.js";
import { drawing } from "./pictures.js";

const answers = new Map(); // a question's text -> Promise of its answer

/** Remember an answer that is on the page already. */
export function remember(pin, envelope) {
  answers.set(keyOf(pin), Promise.resolve(envelope));
}

const keyOf = (pin) => `${pin.view}?${new URLSearchParams(pin.question)}`;

/** The answer of a pin, asked once. A refusal is an answer too: {error}. */
function answerOf(pin) {
  const key = keyOf(pin);
  if (!answers.has(key)) {
    answers.set(
      key,
      post(`/api/${pin.view}`, body(pin.question)).catch((error) => ({ error: error.message })),
    );
  }
  return answers.get(key);
}

/** The table of all pins, or "" without any. */
export async function comparison(pins, { open, remove }) {
  if (!pins.length) return "";
  const found = await Promise.all(pins.map(answerOf));
  const waterfall = await drawing("waterfall");
  const columns = pins.map((pin, index) => ({ pin, ...found[index], letter: "ABCD"[index] }));
  return make(
    "section",
    { class: "compare", "aria-label": words("Compare") },
    make("h2", {}, words("Compare")),
    make(
      "div",
      { class: "scrolled", tabindex: "0", role: "region", "aria-label": words("Compare") },
      make(
        "table",
        { class: "records compare-table" },
        head(columns, open, remove),
        make("tbody", {}, differences(columns), figureRows(columns)),
        waterfalls(columns, waterfall),
      ),
    ),
    pins.length === 1
      ? make("p", { class: "faint" }, words("Change the question and pin it again to see both side by side."))
      : "",
  );
}

function head(columns, open, remove) {
  return make(
    "thead",
    {},
    make(
      "tr",
      {},
      make("th", { scope: "col" }, ""),
      columns.map(({ pin, letter }, index) =>
        make(
          "th",
          { scope: "col" },
          make("span", { class: `letter letter-${index + 1}` }, letter),
          make(
            "button",
            {
              type: "button",
              class: "quiet",
              "aria-label": words("Open {letter}", { letter }),
              onclick: () => open(pin),
            },
            words("Open"),
          ),
          make(
            "button",
            {
              type: "button",
              class: "quiet",
              "aria-label": words("Remove {name}", { name: letter }),
              onclick: () => remove(index),
            },
            "×",
          ),
        ),
      ),
    ),
  );
}

// Only what is not the same in all: the differences, by the name of their flag.
function differences(columns) {
  const all = columns.map(({ pin }) => ({ command: pin.view, ...pin.question }));
  const names = [...new Set(all.flatMap(Object.keys))];
  const differ = names.filter((name) => new Set(all.map((one) => one[name])).size > 1);
  return differ.map((name) =>
    make(
      "tr",
      { class: "differs" },
      make("th", { scope: "row" }, name === "command" ? words("Command") : `--${name.replaceAll("_", "-")}`),
      all.map((one) => make("td", {}, shown(one[name]))),
    ),
  );
}

function shown(value) {
  if (value === undefined) return make("span", { class: "faint" }, words("default"));
  return value.startsWith("{") ? words("your config.json") : value;
}

function figureRows(columns) {
  const lists = columns.map(({ pin, answer }) => (answer ? figures(pin.view, answer) : []));
  const names = [...new Map(lists.flat().map((figure) => [figure.name, figure.label]))];
  const errors = columns.some(({ error }) => error)
    ? [
        make(
          "tr",
          {},
          make("th", { scope: "row" }, words("Refused")),
          columns.map(({ error }) => make("td", { class: "refused" }, error ? said(error) : "")),
        ),
      ]
    : [];
  return [
    ...errors,
    ...names.map(([name, label]) => {
      const row = lists.map((list) => list.find((figure) => figure.name === name));
      const best = row.find((figure) => figure);
      return make(
        "tr",
        {},
        make("th", { scope: "row" }, words(label)),
        row.map((figure) =>
          make(
            "td",
            {},
            figure
              ? [
                  make(
                    "span",
                    {
                      class: "compare-value",
                      "data-name": name,
                      "data-value": String(figure.given ?? figure.value),
                    },
                    show(figure.value, figure.dimension),
                  ),
                  figure === best ? "" : change(figure, best),
                  figure.low === undefined || figure.low === figure.high
                    ? ""
                    : make(
                        "span",
                        { class: "compare-between" },
                        showBetween(figure.low, figure.value, figure.high, figure.dimension),
                      ),
                ]
              : "–",
          ),
        ),
      );
    }),
  ];
}

// Of a share in points: a percentage of a percentage is read wrongly.
function change(figure, first) {
  const ratio = figure.value / first.value;
  if (!Number.isFinite(ratio)) return "";
  const percent = figure.dimension === "share" ? (figure.value - first.value) * 100 : (ratio - 1) * 100;
  const size = `${percent > 0 ? "+" : "−"}${digits(Math.abs(percent))}`;
  const text =
    Math.abs(percent) < 0.05
      ? words("same")
      : figure.dimension === "share"
        ? words("{size} points", { size })
        : ratio >= 2
          ? `× ${digits(ratio)}`
          : `${size} %`;
  return make("span", { class: "change" }, text);
}

function waterfalls(columns, draw) {
  if (!draw || !columns.some(({ answer }) => answer?.waterfall)) return "";
  return make(
    "tbody",
    {},
    make(
      "tr",
      { class: "compare-pictures" },
      make("th", { scope: "row" }, words("From the box to your run")),
      columns.map(({ answer }) => {
        const slot = make("div", {});
        // Drawn when the table has its width.
        if (answer?.waterfall) requestAnimationFrame(() => draw(slot, answer, { words, onPick: () => {} }));
        return make("td", {}, slot);
      }),
    ),
  );
}
