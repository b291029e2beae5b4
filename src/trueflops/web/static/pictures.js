// Which pictures an answer is shown by, and their modules, which come when first needed.
// In: a view, an answer. Out: figures with a title, the drawing, and what to save it as.

import { make } from "./dom.js";
import { savePng, saveSvg } from "./export.js";
import { mark, words } from "./words.js";

// name, title, whether it wants the whole width, and whether the answer has what it draws.
const PICTURES = {
  train: [
    ["waterfall", mark("From the box to your run"), false, (answer) => answer.waterfall],
    ["memory", mark("Memory of the fullest accelerator"), false, (answer) => answer.memory],
    ["front", mark("Time against memory: what the search found"), true, (answer) => answer.search?.front],
    ["timeline", mark("Timeline of one step"), true, (answer) => answer.timeline],
    ["memory_time", mark("Memory of each stage over time"), true, (answer) => answer.timeline],
    ["roofline", mark("Every op on the roofline"), true, (answer) => answer.ops],
  ],
  infer: [
    ["latency", mark("Latency against load"), true, (answer) => answer.loads],
    ["memory", mark("Memory of the fullest accelerator"), false, (answer) => answer.memory],
    ["roofline", mark("Every op on the roofline"), false, (answer) => answer.ops],
    ["front", mark("For one user against for all"), true, (answer) => answer.pareto],
  ],
  compare: [["chips", mark("Chips side by side, dense"), true, (answer) => answer.chips]],
  explain: [
    ["tiles", mark("Tiles and waves"), false, (answer) => answer.tile],
    ["roofline", mark("On the roofline"), false, (answer) => answer.ridge_flop_per_byte],
  ],
  collective: [["ring", mark("Who sends what to whom"), true, (answer) => answer.schedule]],
  stragglers: [["stragglers", mark("One is slow: who waits, and what is lost"), true, (answer) => answer.timeline]],
};

const modules = new Map(); // name -> Promise of its draw, or of null where there is no such file

/** The draw function of a picture. */
export function drawing(name) {
  if (!modules.has(name)) {
    modules.set(
      name,
      import(`./pictures/${name}.js`).then(
        (module) => module.draw,
        () => null,
      ),
    );
  }
  return modules.get(name);
}

/** The figures of a view: `update(answer)` draws those that the answer has, and hides the rest. */
export function gallery(view, onPick) {
  const slots = (PICTURES[view] ?? []).map(([name, title, wide, has]) => {
    const slot = make("div", { class: "picture-slot", "data-picture": name });
    const figure = make(
      "figure",
      { class: wide ? "picture picture-wide" : "picture", hidden: true },
      make(
        "figcaption",
        {},
        make("h2", {}, words(title)),
        make(
          "span",
          { class: "picture-keep" },
          keep("SVG", () => saveSvg(slot, name)),
          keep("PNG", () => savePng(slot, name)),
        ),
      ),
      slot,
    );
    return { name, has, slot, figure };
  });
  const element = make(
    "div",
    { class: "gallery" },
    slots.map(({ figure }) => figure),
  );
  const update = async (answer) => {
    await Promise.all(
      slots.map(async ({ name, has, slot, figure }) => {
        const draw = has(answer) ? await drawing(name) : null;
        figure.hidden = draw === null;
        if (draw === null) return;
        try {
          draw(slot, answer, { words, onPick });
        } catch (error) {
          // one picture's bug leaves the answer and the other pictures as they are
          figure.hidden = true;
          console.error(`${name}: ${error.stack}`);
        }
        figure.classList.toggle("no-svg", slot.querySelector("svg") === null);
      }),
    );
  };
  return { element, update };
}

function keep(kind, save) {
  return make(
    "button",
    { type: "button", class: "quiet", onclick: save, title: words("Save as {kind}", { kind }) },
    kind,
  );
}
