// What a dropped file says, by its kind. In: an answer of diagnose, verify or measure show. Out: the
// figures first, then tables, then everything in it.

import { make } from "./dom.js";
import { fold, showAll, table, termTable, titled, titledTable } from "./tree.js";
import { show } from "./units.js";
import { mark, said, words } from "./words.js";

const KINDS = {
  trace: mark("A profiler's trace: where its time went"),
  profile: mark("A measured profile"),
  csv: mark("A table of measured runs, beside predictions"),
  answer: mark("An answer of trueflops: its question"),
  config: mark("A model's config.json"),
};
const SHOWN = { trace: diagnosis, csv: verified, profile: measured };

/** Everything about a file that the server recognised. */
export function droppedView(name, { kind, answer }) {
  return make(
    "div",
    { class: "dropped" },
    make(
      "p",
      { class: "about" },
      make("strong", {}, name),
      make("span", {}, words(KINDS[kind] ?? kind)),
      answer?.device ? make("span", {}, answer.device) : null,
    ),
    (SHOWN[kind] ?? (() => []))(answer),
    make(
      "section",
      { class: "folds" },
      make("h2", {}, words("Everything in it")),
      Object.entries(answer ?? {})
        .filter(([, value]) => value?.parts)
        .map(([key, value]) => termTable(value, said(key))),
      fold(words("The whole answer"), () => showAll(answer)),
    ),
  );
}

function diagnosis(answer) {
  const whole = answer.step?.seconds;
  const share = (seconds) => seconds / whole;
  const causes = Object.entries({ ...answer.seconds_by_cause, [mark("idle")]: answer.idle_seconds })
    .filter(([, seconds]) => seconds > 0)
    .sort(([, a], [, b]) => b - a)
    .map(([name, seconds]) => ({ name: said(name), seconds, share: share(seconds) }));
  return [
    figures([
      [mark("Step"), whole, "seconds"],
      [mark("Kernels busy"), answer.busy_seconds, "seconds"],
      [mark("Idle"), answer.idle_seconds, "seconds"],
      [mark("Exposed communication"), answer.exposed_communication_seconds, "seconds"],
      [mark("Share of the peak"), answer.share_of_dense_peak, "share"],
      [mark("Predicted for its kernels"), answer.predicted_kernel_seconds?.value, "seconds"],
    ]),
    advice(answer),
    titled(words("Where the step goes"), barTable(causes, words("Cause"))),
    answer.kernels?.length ? kernelTable(answer.kernels) : null,
  ];
}

function advice(answer) {
  const lines = [
    ...(answer.advice ?? []).map((one) => [one.text, one.saves_seconds]),
    ...(answer.warnings ?? []).map((text) => [text, null]),
  ];
  if (!lines.length) return null;
  return make(
    "section",
    { class: "notes" },
    make("h2", {}, words("What would help")),
    make(
      "ul",
      {},
      lines.map(([text, saves]) =>
        make(
          "li",
          {},
          saves ? make("strong", {}, `${words("saves {time}", { time: show(saves, "seconds") })} · `) : null,
          said(text),
        ),
      ),
    ),
  );
}

function kernelTable(kernels) {
  const rows = kernels
    .slice(0, 40)
    .map((one) => ({
      ...one,
      predicted_seconds: one.predicted_seconds?.value ?? null,
      ratio_share: one.ratio,
    }));
  return titledTable(words("Kernels, measured beside predicted"), rows, [
    ["kernel", words("Kernel"), false],
    ["count", words("Times")],
    ["measured_seconds", words("Measured")],
    ["predicted_seconds", words("Predicted")],
    ["ratio_share", words("Measured / predicted")],
    ["bound", words("Bound by"), false],
  ]);
}

function verified(answer) {
  const overall = answer.overall?.[0] ?? {};
  const rows = answer.rows.map((one) => ({
    ...one,
    error_share: one.error,
    inside: one.measured >= one.low && one.measured <= one.high,
  }));
  return [
    figures([
      [mark("Runs"), overall.rows ?? rows.length, "whole"],
      [mark("Median error"), overall.median, "share"],
      [mark("90 % of errors below"), overall.p90, "share"],
      [mark("Inside the interval"), overall.coverage, "share"],
      [mark("Refused"), answer.refused?.length, "whole"],
    ]),
    titledTable(words("Predicted against measured"), rows, [
      ["id", words("Run"), false],
      ["group", words("Source"), false],
      ["quantity", words("Quantity"), false],
      ["measured", words("Measured")],
      ["predicted", words("Predicted")],
      ["low", words("From")],
      ["high", words("To")],
      ["error_share", words("Error")],
      ["inside", words("Inside"), false],
    ]),
    answer.refused?.length ? titled(words("Refused"), showAll(answer.refused, "refused")) : null,
  ];
}

function measured(answer) {
  const rows = Object.entries(answer.products ?? {}).map(([name, one]) => ({ name, ...one }));
  return rows.length
    ? [
        titledTable(words("Products, delivered against the datasheet"), rows, [
          ["name", words("Format"), false],
          ["flop_per_second", words("Delivered")],
          ["sustained_flop_per_second", words("Sustained")],
          ["datasheet_flop_per_second", words("Datasheet")],
        ]),
      ]
    : [];
}

function figures(list) {
  return make(
    "dl",
    { class: "cards" },
    list
      .filter(([, value]) => Number.isFinite(value))
      .map(([label, value, dimension]) =>
        make(
          "div",
          { class: "card" },
          make("dt", {}, make("span", {}, words(label))),
          make(
            "dd",
            {},
            make(
              "span",
              { class: "card-value", "data-name": label, "data-value": String(value) },
              show(value, dimension),
            ),
          ),
        ),
      ),
  );
}

function barTable(rows, first) {
  const drawn = rows.map((row) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = `${(row.share * 100).toFixed(2)}%`;
    return { ...row, drawn: bar };
  });
  return table(
    drawn,
    [
      ["name", first, false],
      ["seconds", words("Time")],
      ["share", words("Share")],
      ["drawn", "", false],
    ],
    first,
  );
}
