// The left pane: a form for the view's question. In: the state and /api/options. Out: elements whose
// changes call `change(question, settled)`.

import { fill, make } from "./dom.js";
import { select, segmented, slider, text, toggle } from "./fields.js";
import { AXES, AXIS_STOPS, FIRST_SHAPE, FORMS, PLAN_KEYS } from "./forms.js";
import { picker } from "./picker.js";
import { mark, said, words } from "./words.js";

/** Whether nobody says how to cut the model, so that every cut is tried. */
export function isSearch(view, question) {
  if (view !== "train" && view !== "infer") return false;
  const many = /(^|,)any$|,/.test(question.on ?? "");
  return many || question.search === "true" || !PLAN_KEYS.some((key) => key in question);
}

/** Draw the form anew. `found` is the plan of the latest answer, for "Set by hand". */
export function drawForm(pane, { view, question, options, change, found, dropped }) {
  if (view === "drop") return fill(pane, dropped);
  // A control that moves changes the question in place; only what changes the form itself (which
  // plan, which kernel) has it drawn anew, so that nobody loses the slider under the hand.
  const context = {
    view,
    options,
    get question() {
      return question;
    },
    set:
      (name, unless = "", redraw = false) =>
      (value, settled) => {
        const next = { ...question };
        if (value === "" || (value === unless && !isKept(name))) delete next[name];
        else next[name] = value;
        question = next;
        change(next, settled, redraw);
      },
    change: (next) => change(next, true, true),
  };
  const groups = FORMS[view].map((group) => drawGroup(group, context, found));
  return fill(
    pane,
    make("form", { class: "form", onsubmit: (event) => event.preventDefault() }, groups, theRest(context)),
  );
}

// tp says that the plan is set by hand, so that it stays even at 1.
function isKept(name) {
  return name === "tp";
}

function drawGroup(group, context, found) {
  const children = group.plan
    ? planFields(group, context, found)
    : group.fields.map((field) => drawField(field, context));
  return make("section", { class: "group" }, make("h2", {}, words(group.title)), children);
}

function planFields(group, context, found) {
  const byHand = !isSearch(context.view, context.question);
  const mode = segmented({
    label: mark("How the plan is chosen"),
    hidden: true,
    value: byHand ? "hand" : "search",
    choices: [
      ["search", mark("Search the best")],
      ["hand", mark("Set by hand")],
    ],
    commit: (value) =>
      context.change(
        value === "hand" ? { ...context.question, ...found() } : withoutPlan(context.question, group),
      ),
  });
  return [mode, ...(byHand ? group.fields.map((field) => drawField(field, context)) : [])];
}

function withoutPlan(question, group) {
  const names = [...PLAN_KEYS, ...group.fields.map((field) => field.name)];
  return Object.fromEntries(Object.entries(question).filter(([key]) => !names.includes(key)));
}

function drawField(field, context) {
  const value = context.question[field.name] ?? field.unless ?? "";
  const commit = context.set(field.name, field.unless, field.redraws);
  const flag = flagOf(context, field.name);
  const common = { ...field, value, commit, help: flag?.help ? said(flag.help) : "" };
  switch (field.kind) {
    case "slider":
      return slider(common);
    case "segmented":
      return segmented(common);
    case "select":
      return select(common);
    case "text":
      return text(common);
    case "toggle":
      return toggle(common);
    case "model":
      return modelField(common, context);
    case "cluster":
      return clusterFields(common, context);
    case "chip":
      return picker({ ...common, names: context.options.accelerators });
    case "chips":
      return chipsField(common, context);
    case "shape":
      return shapeFields(common, context);
    case "listed":
      return select({
        ...common,
        choices: [
          ["", mark("as usual")],
          ...(context.options[`${field.from}s`] ?? []).map((name) => [name, name]),
        ],
      });
    default:
      throw new Error(`no control for ${field.kind}`);
  }
}

function modelField(common, context) {
  const own = common.value.startsWith("{");
  return picker({
    ...common,
    value: own ? words("your config.json") : common.value,
    names: context.options.models,
    placeholder: common.placeholder ?? mark("a name, or drop a config.json"),
  });
}

const COUNTS = ["", ...Array.from({ length: 15 }, (_, power) => String(2 ** power))];
const NODES = ["", "1", "2", "4", "8", "16", "72"];
const CLUSTER = /^(?:(\d+)x)?(?:(\d+)x)?(.*)$/;

// 64xH100 or 8x8xH100 as three controls; a cluster's own name (Selene) needs none of them.
function clusterFields(common, context) {
  const [, first = "", second = "", name] = CLUSTER.exec(common.value);
  const now = { count: second ? String(Number(first) * Number(second)) : first, node: second, chip: name };
  const join = ({ count, node, chip }) => {
    if (!count) return chip;
    const nodes = Number(count) / Number(node);
    return node && nodes >= 1 && Number.isInteger(nodes) ? `${nodes}x${node}x${chip}` : `${count}x${chip}`;
  };
  const part = (key) => (value, settled) => {
    now[key] = value;
    common.commit(join(now), settled);
  };
  return make(
    "div",
    { class: "fields" },
    picker({
      label: mark("Chip"),
      value: now.chip,
      help: common.help,
      commit: part("chip"),
      names: [...context.options.accelerators, ...(context.options.clusters ?? []), "any"],
    }),
    slider({
      label: mark("Chips"),
      value: now.count,
      stops: COUNTS,
      auto: mark("as named"),
      commit: part("count"),
    }),
    slider({
      label: mark("Chips a node"),
      value: now.node,
      stops: NODES,
      auto: mark("as usual"),
      commit: part("node"),
    }),
  );
}

function chipsField(common, context) {
  const chosen = common.value.split(/[\s,]+/).filter(Boolean);
  const without = (name) => chosen.filter((other) => other !== name).join(" ");
  return make(
    "div",
    { class: "fields" },
    picker({
      label: mark("Add a chip"),
      value: "",
      names: context.options.accelerators,
      placeholder: chosen.length ? mark("another …") : mark("all that ship"),
      commit: (value, settled) => value && common.commit([...chosen, value].join(" "), settled),
    }),
    make(
      "ul",
      { class: "tokens" },
      chosen.map((name) =>
        make(
          "li",
          {},
          name,
          make(
            "button",
            {
              type: "button",
              "aria-label": words("Remove {name}", { name }),
              onclick: () => common.commit(without(name), true),
            },
            "×",
          ),
        ),
      ),
    ),
  );
}

function shapeFields(common, context) {
  const kernel = context.question.what ?? "matmul";
  const axes = AXES[kernel];
  const given = common.value.split("x");
  const sizes = given.length === axes.length ? given : FIRST_SHAPE[kernel].split("x");
  return make(
    "div",
    { class: "fields" },
    axes.map((label, index) =>
      slider({
        label,
        value: sizes[index],
        stops: AXIS_STOPS[kernel][index],
        commit: (value, settled) => {
          sizes[index] = value || "1";
          common.commit(sizes.join("x"), settled);
        },
      }),
    ),
  );
}

function flagOf(context, name) {
  return context.options.commands[context.view]?.flags.find((flag) => flag.name === name);
}

// Every flag that the form above does not have, as the command's own help describes it.
function theRest(context) {
  const drawn = new Set(FORMS[context.view].flatMap((group) => group.fields.map((field) => field.name)));
  const flags = (context.options.commands[context.view]?.flags ?? []).filter(
    (flag) => !drawn.has(flag.name) && flag.flag,
  );
  const given = flags.filter((flag) => flag.name in context.question).length;
  const fields = flags.map((flag) => {
    const value = context.question[flag.name] ?? "";
    const common = {
      label: flag.flag || flag.name,
      value,
      help: said(flag.help ?? ""),
      commit: context.set(flag.name),
    };
    if (flag.choices?.length)
      return select({
        ...common,
        choices: [["", mark("default")], ...flag.choices.map((c) => [String(c), String(c)])],
      });
    if (flag.bare && !flag.valued && flag.default !== null) return toggle(common);
    if (flag.bare)
      return select({
        ...common,
        choices: [
          ["", mark("default")],
          ["true", mark("on")],
          ["false", mark("off")],
        ],
      });
    return text({ ...common, placeholder: mark("default") });
  });
  if (!fields.length) return null;
  return make(
    "details",
    { class: "group rest", open: given > 0 },
    make(
      "summary",
      {},
      make("h2", {}, words("Everything else")),
      make("span", { class: "count" }, given ? `${given} / ${fields.length}` : String(fields.length)),
    ),
    fields,
  );
}
