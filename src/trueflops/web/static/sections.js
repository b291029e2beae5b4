// The tables of an answer, by what it has: plans, loads, algorithms, tiles, chips, parts of totals.
// In: an answer. Out: sections.

import { make } from "./dom.js";
import { ALGORITHMS } from "./forms.js";
import { inWords } from "./plans.js";
import { fold, showAll, termTable, titledTable } from "./tree.js";
import { showBetween } from "./units.js";
import { mark, said, words } from "./words.js";

/** Everything that stands below the pictures. */
export function below(answer) {
  return [
    answer.for ? trainingTable(answer) : null,
    answer.for ? servingTable(answer) : null,
    answer.load ? loadTable(answer.load) : null,
    answer.algorithms ? algorithmsTable(answer) : null,
    answer.tile_shapes ? shapesTable(answer) : null,
    answer.modes ? modesTable(answer) : null,
    answer.would_fit?.length
      ? make(
          "section",
          { class: "notes" },
          make("h2", {}, words("What would fit")),
          showAll(answer.would_fit, "would_fit"),
        )
      : null,
    answer.notes?.length ? notes(answer.notes) : null,
    make(
      "section",
      { class: "folds" },
      make("h2", {}, words("Every part of every total")),
      answer.step ? termTable(answer.step, words("Time of a step")) : null,
      answer.prefill?.name ? termTable(answer.prefill, words("Prefill")) : null,
      answer.decode?.name ? termTable(answer.decode, words("Decode step")) : null,
      answer.memory?.parts ? termTable(answer.memory, words("Memory")) : null,
      fold(words("The whole answer"), () => showAll(answer)),
    ),
  ].filter((part) => part !== null);
}

function notes(lines) {
  return make(
    "section",
    { class: "notes" },
    make("h2", {}, words("What nobody stated, and was assumed")),
    make(
      "ul",
      {},
      lines.map((line) => make("li", {}, said(line))),
    ),
  );
}

/** The plans that a search found, best first; each opens. */
export function plansTable(view, plans, onPick) {
  const rows = plans.map((one, index) => ({
    ...one,
    rank: index + 1,
    words: inWords(one.plan),
    open: make("button", { type: "button", class: "quiet", onclick: () => onPick(one) }, words("Open")),
  }));
  const middle =
    view === "train"
      ? [
          ["step_seconds", words("Step")],
          ["memory_bytes", words("Memory")],
        ]
      : [
          ["tokens_per_second", words("Tokens/s")],
          ["ttft_seconds", "TTFT"],
          ["tpot_seconds", "TPOT"],
        ];
  const columns = [["rank", "#"], ...middle, ["words", words("Plan"), false], ["open", "", false]];
  const title = view === "train" ? words("The best plans") : words("Ways to cut the cluster");
  return titledTable(title, rows, columns);
}

const within = (mean) => (mean ? showBetween(mean.low, mean.value, mean.high, "seconds") : "");

function loadTable(load) {
  const names = [
    ["queue_seconds", mark("Queue")],
    ["ttft_seconds", mark("Time to first token")],
    ["tpot_seconds", mark("Time per output token")],
    ["itl_seconds", mark("Between two tokens")],
    ["e2e_seconds", mark("Whole request")],
  ];
  const rows = names
    .filter(([key]) => load[key])
    .map(([key, text]) => ({
      what: words(text),
      within: within(load[`mean_${key}`]),
      ...Object.fromEntries(Object.entries(load[key]).map(([point, value]) => [`${point}_seconds`, value])),
    }));
  const points = Object.keys(load.ttft_seconds ?? {});
  const columns = points.map((point) => [`${point}_seconds`, words(point)]);
  columns.splice(1, 0, ["within", words("90 % interval")]); // behind the mean, whose it is
  return titledTable(words("What users see under this load"), rows, [["what", "", false], ...columns]);
}

function algorithmsTable(answer) {
  const rows = answer.algorithms.map((one) => ({
    ...one,
    name: words(ALGORITHMS[one.name] ?? one.name) + (one.of_library ? " *" : ""),
  }));
  return titledTable(
    words("By every algorithm"),
    rows,
    [
      ["name", words("Algorithm"), false],
      ["seconds", words("Time")],
      ["bus_bytes_per_second", words("Bus bandwidth")],
      ["algorithm_bytes_per_second", words("Algorithm bandwidth")],
      ["steps", words("Steps")],
      ["busiest_sends_bytes", words("The busiest sends")],
      ["bound", words("Bound by"), false],
    ],
    make("p", { class: "faint" }, words("* the library's own: its fastest is what a training step pays")),
  );
}

function shapesTable(answer) {
  const rows = answer.tile_shapes.map((one) => ({ ...one, tile: `${one.rows} × ${one.columns}` }));
  return titledTable(words("Other tiles"), rows, [
    ["tile", words("Tile"), false],
    ["seconds", words("Time")],
    ["tiles", words("Tiles")],
    ["waves", words("Waves")],
    ["padding_lost_share", words("Lost to padding")],
    ["quantisation_lost_share", words("Lost in the last wave")],
  ]);
}

/** A way to use gradients with the number that it was given: "drops 1", "bounded by 3". */
export function modeName({ name, dropped_workers: drop, staleness_bound: staleness }) {
  if (drop !== undefined) return words("drops {drop}", { drop });
  return staleness === undefined ? words(name) : words("bounded by {staleness}", { staleness });
}

function modesTable(answer) {
  const rows = answer.modes.map((one) => ({
    ...one,
    name: modeName(one),
    lost_share: one.lost,
    waiting_share: one.waiting,
    dropped_share: one.dropped,
  }));
  return titledTable(
    words("By how gradients are used"),
    rows,
    [
      ["name", words("updates"), false],
      ["gradients_per_second", words("gradients/s")],
      ["lost_share", words("lost")],
      ["waiting_share", words("waiting")],
      ["dropped_share", words("dropped")],
      ["mean_staleness", words("stale by")],
      ["most_staleness", words("at most")],
      ["most_steps_ahead", words("ahead")],
    ],
    make(
      "p",
      { class: "faint" },
      words(
        "lost: of healthy workers in step; stale by: updates of others between reading and changing parameters; ahead: steps before the slowest",
      ),
    ),
  );
}

// Chips for a model: what training and serving it take on each.
function trainingTable(answer) {
  const rows = answer.chips.map((chip) => ({
    ...chip.training,
    chip: chip.name,
    why: said(chip.why_not_training ?? ""),
  }));
  return chipsSection(words("Training {model} on each", { model: answer.for }), rows, [
    ["accelerators", words("How many")],
    ["tokens_per_second", words("Tokens/s")],
    ["mfu_share", "MFU"],
    ["usd_per_million_tokens", words("Per million tokens")],
  ]);
}

function servingTable(answer) {
  const rows = answer.chips.map((chip) => ({
    ...chip.serving,
    chip: chip.name,
    why: said(chip.why_not_serving ?? ""),
  }));
  return chipsSection(words("Serving {model} on each", { model: answer.for }), rows, [
    ["accelerators", words("How many")],
    ["tokens_per_second", words("Tokens/s")],
    ["ttft_seconds", "TTFT"],
    ["tpot_seconds", "TPOT"],
    ["usd_per_million_tokens", words("Per million tokens")],
  ]);
}

function chipsSection(title, rows, columns) {
  const shown = rows.map((row) => ({ ...row, mfu_share: row.mfu }));
  const refused = rows.some((row) => row.why) ? [["why", words("Why not"), false]] : [];
  return titledTable(title, shown, [["chip", words("Chip"), false], ...columns, ...refused]);
}
