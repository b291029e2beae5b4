// What pictures need beyond an answer, asked after it: a prediction is on the page at once, and its
// timeline, every op of it and its latency against load follow when the hand is still.

import { post } from "./api.js";
import { PLAN_KEYS } from "./forms.js";
import { fromFlags } from "./plans.js";
import { body } from "./state.js";

const WAIT_MS = 250;
// Flags that give more of the same answer, and those that they cannot stand beside.
const MORE = {
  train: [{ ops: "true", timeline: "true" }],
  // 300 requests: as many as a curve needs.
  infer: [{ ops: "true" }, { rates: "true", requests: "300" }, { pareto: "true" }],
  stragglers: [{ timeline: "true" }],
};
const LOADS = ["rate", "requests", "arrival", "burstiness", "think", "lengths"];
const APART = { rates: LOADS, pareto: [...LOADS, ...PLAN_KEYS, "ttft", "tpot", "prefill", "decode"] };
// Of a searched plan: its own degrees, so that nothing is searched again.
const SEARCHING = ["search", "top", "offload", "minimise"];

/** Asks what is missing of an answer; `onMore` hears the answer with more in it, once for each ask, and
 * promises to have drawn it: all is done when the last picture is. */
export async function askMore({ view, question, envelope }, options, signal, onMore) {
  const offered = new Set((options.commands[view]?.flags ?? []).map((flag) => flag.name));
  let known = envelope.answer;
  if (!MORE[view] || known.fits === false) return;
  await new Promise((resolve) => {
    setTimeout(resolve, WAIT_MS);
  });
  const drawn = [];
  for (const wanted of MORE[view]) {
    const flags = Object.fromEntries(Object.entries(wanted).filter(([name]) => offered.has(name)));
    if (signal.aborted || !Object.keys(flags).length) continue;
    const apart = Object.keys(flags).flatMap((flag) => APART[flag] ?? []);
    const beside = Object.entries(planned(question, known)).filter(([name]) => !apart.includes(name));
    const asked = { ...Object.fromEntries(beside), ...flags };
    try {
      const found = await post(`/api/${view}`, body(asked), signal);
      // The answer itself stays as it was: only what it lacked is added.
      known = { ...found.answer, ...known };
      if (!signal.aborted) drawn.push(onMore(known));
    } catch {
      // The answer is on the page; a picture that cannot be had beside it is left out.
    }
  }
  await Promise.all(drawn);
}

function planned(question, answer) {
  const kept = Object.entries(question).filter(([name]) => !SEARCHING.includes(name));
  return { ...Object.fromEntries(kept), ...fromFlags(answer.plan_flags) };
}
