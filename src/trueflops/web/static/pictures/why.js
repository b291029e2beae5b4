// Why a task takes what it takes: one layer of it op by op, and behind an op its law and curve.
// In: a kind of task and an answer with "ops". Out: elements of the page.

/* global d3 */
import { fill, make } from "../dom.js";
import { show, showBetween } from "../units.js";
import { named } from "./drawn.js";

const PHASES = {
  forward: ["forward"],
  backward: ["recompute", "backward", "backward_weight"],
  "input gradient": ["recompute", "backward"],
  "weight gradient": ["backward_weight"],
  "forward and backward": ["forward", "recompute", "backward", "backward_weight"],
};
export const OP_COLOURS = {
  matmul: 1,
  experts: 7,
  attention: 5,
  attention_backward: 5,
  attention_decode: 5,
  collective: 2,
  memory: 4,
  eager: 4,
};

/** One layer of a task as a bar of its ops; the longest is explained at first. */
export function why(kind, answer, words) {
  const ops = (answer.ops?.ops ?? []).filter(
    (op) => PHASES[kind]?.includes(op.phase) && op.where.startsWith("block") && op.often > 0,
  );
  if (!ops.length) return null;
  const whole = d3.sum(ops, (op) => op.seconds);
  const shown = make("div", { class: "why" });
  const bars = ops.map((op) => {
    const bar = make("button", {
      type: "button",
      class: "op",
      "aria-label": `${op.name}, ${words(op.phase.replace("_", " "))}, ${show(op.seconds, "seconds")}`,
      title: `${op.name} · ${show(op.seconds, "seconds")}`,
      onclick: () => open(op),
    });
    bar.style.flexGrow = String(op.seconds / whole);
    bar.style.background = `var(--c${OP_COLOURS[op.kind] ?? 8})`;
    return bar;
  });
  function open(op) {
    bars.forEach((bar, index) => bar.setAttribute("aria-pressed", String(ops[index] === op)));
    fill(shown, ...explained(op, answer.ops.curves[op.curve], whole, words));
  }
  open(ops.reduce((a, b) => (b.seconds > a.seconds ? b : a)));
  return make(
    "div",
    {},
    make(
      "p",
      { class: "faint" },
      words("One layer of it, op by op, each alone on the accelerator: {seconds}", {
        seconds: show(whole, "seconds"),
      }),
    ),
    make("div", { class: "op-bar", role: "group", "aria-label": words("Ops of one layer") }, bars),
    shown,
  );
}

/** An op, and the law, curve, source and error behind its seconds. */
export function explained(op, curve, whole, words) {
  const rows = [
    [words("Time"), `${show(op.seconds, "seconds")} (${showBetween(op.low, op.seconds, op.high, "seconds")})`],
    [words("Share"), `${((100 * op.seconds) / whole).toFixed(1)} %`],
    op.flop
      ? [
          words("Rate"),
          `${show(op.flop / op.seconds, "flop_per_second")}, ${show(op.bytes / op.seconds, "bytes_per_second")}`,
        ]
      : [words("Rate"), show(op.bytes / op.seconds, "bytes_per_second")],
    [words("Bound by"), words(op.bound)],
    ...(curve ? chain(curve, words) : []),
  ];
  const title = named(d3.create("strong"), `op.${op.name}.${op.phase}`, op.seconds)
    .text(`${op.name}, ${words(op.phase.replace("_", " "))}`)
    .node();
  return [
    title,
    make(
      "dl",
      { class: "why-list" },
      rows.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text))),
    ),
  ];
}

function chain(curve, words) {
  const tried = curve.tried
    .map(({ curve: name, outcome }) => (outcome === "found" ? name : `${name} (${words(outcome)})`))
    .join(" → ");
  const off = curve.held_out;
  const spread = words("one standard deviation {share}", { share: percent(curve.log_seconds_error) });
  const error = off
    ? words("median {median}, p90 {p90} on {rows} rows held out; {spread}", {
        median: percent(off.median),
        p90: percent(off.p90),
        rows: off.rows,
        spread,
      })
    : words("no rows held out; {spread}", { spread });
  return [
    [words("Law"), tried],
    [words("Whose"), [curve.profile, ...curve.changes].filter(Boolean).join("; ") || "–"],
    [words("Source"), `${curve.origin}: ${curve.source}`],
    [
      words("Fitted to"),
      curve.fitted_rows ? words("{rows} rows", { rows: curve.fitted_rows.toLocaleString("en-US") }) : "–",
    ],
    [words("Error"), error],
  ];
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;
