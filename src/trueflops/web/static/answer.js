// The right pane: the answer to the view's question. In: {command, exit_code, answer}. Out: elements
// that are filled again at every answer, so that pictures redraw in place.

import { fill, make } from "./dom.js";
import { ALGORITHMS } from "./forms.js";
import { cards } from "./headline.js";
import { keepBar } from "./keep.js";
import { drawing, gallery } from "./pictures.js";
import { fromFields, fromFlags, inWords } from "./plans.js";
import { below, plansTable } from "./sections.js";
import { show } from "./units.js";
import { said, words } from "./words.js";

/** The frame of a view's answer: {element, update, refuse, progress, redraw}. `pick(flags)` changes the question. */
export function answerFrame(view, { pick, pin, cancel }) {
  const onPick = (picked) =>
    pick(
      typeof picked === "string"
        ? fromFlags(picked)
        : typeof picked?.plan_flags === "string"
          ? fromFlags(picked.plan_flags)
          : picked?.plan
            ? fromFields(picked.plan)
            : picked,
    );
  const parts = Object.fromEntries(
    ["error", "progress", "keep", "about", "cards", "plans", "below"].map((name) => [
      name,
      make("div", { class: `answer-${name}` }),
    ]),
  );
  parts.error.setAttribute("role", "alert");
  const pictures = gallery(view, onPick);
  const element = make(
    "div",
    { class: "answer-frame" },
    parts.keep,
    parts.error,
    parts.progress,
    parts.about,
    parts.cards,
    parts.plans,
    pictures.element,
    parts.below,
  );
  const spread = { draw: null };
  const update = async (envelope, question) => {
    const { answer } = envelope;
    spread.draw ??= await drawing("spread");
    element.classList.remove("stale");
    fill(parts.error);
    fill(parts.progress);
    fill(parts.keep, keepBar(view, envelope, question, pin));
    fill(parts.about, about(view, answer, envelope.exit_code));
    const made = cards(view, answer);
    fill(parts.cards, made.element.childElementCount ? made.element : null);
    if (spread.draw) made.drawSpreads((slot, figure) => spread.draw(slot, figure, { words, onPick }));
    const plans = answer.best ?? answer.cuts ?? [];
    fill(parts.plans, plans.length > 1 ? plansTable(view, plans, onPick) : null);
    await pictures.update(answer);
    fill(parts.below, below(answer));
  };
  const refuse = (error) => {
    element.classList.add("stale");
    fill(parts.progress);
    fill(
      parts.error,
      make("p", { class: "refusal" }, said(error.message), error.code ? make("code", {}, error.code) : null),
    );
  };
  const bar = make("progress", { max: 1, "aria-label": words("How far the search is") });
  const how = make("span", {});
  const progress = ({ decided, legal, best_seconds: best, text } = {}) => {
    element.classList.add("stale");
    fill(parts.error);
    if (legal) bar.value = decided / legal;
    how.textContent = legal
      ? words("{decided} of {legal} plans", {
          decided: decided.toLocaleString("en-US"),
          legal: legal.toLocaleString("en-US"),
        }) + (best ? ` · ${words("best so far {best}", { best: show(best, "seconds") })}` : "")
      : said(text ?? "") || words("Searching …");
    if (!parts.progress.contains(bar)) {
      fill(
        parts.progress,
        make(
          "div",
          { class: "searching" },
          bar,
          how,
          make("button", { type: "button", onclick: cancel }, words("Cancel")),
        ),
      );
    }
  };
  return { element, update, refuse, progress, redraw: pictures.update };
}

/** What was predicted, in one line, and whether it is possible. */
function about(view, answer, code) {
  const pieces = [];
  if (answer.model)
    pieces.push(
      words("{name}, {count} parameters", {
        name: answer.model.name,
        count: show(answer.model.parameters, "count"),
      }),
    );
  if (answer.cluster) {
    const { accelerators, accelerator, nodes } = answer.cluster;
    pieces.push(
      `${accelerators} × ${accelerator}`,
      nodes === 1 ? words("one node") : words("{nodes} nodes", { nodes }),
    );
  }
  if (view === "explain")
    pieces.push(`${answer.on}`, words("bound by {what}", { what: words(answer.bound) }));
  if (view === "collective")
    pieces.push(
      words("the library takes {name}", {
        name: words(ALGORITHMS[answer.library_algorithm] ?? answer.library_algorithm),
      }),
      words("fastest: {name}", {
        name: words(ALGORITHMS[answer.fastest_algorithm] ?? answer.fastest_algorithm),
      }),
    );
  if (view === "stragglers") pieces.push(words("{n} workers", { n: answer.workers }));
  if (answer.plan && (view === "train" || view === "infer")) pieces.push(inWords(answer.plan));
  const verdict =
    answer.fits === undefined
      ? null
      : make(
          "strong",
          { class: answer.fits ? "fits" : "fits-not" },
          answer.fits ? words("fits") : words("does not fit"),
        );
  const no =
    code === 1 && answer.fits !== false
      ? make("strong", { class: "fits-not" }, words("the answer is no"))
      : null;
  return pieces.length
    ? make(
        "p",
        { class: "about" },
        verdict,
        no,
        pieces.map((piece) => make("span", {}, piece)),
      )
    : "";
}
