// The controls of a form. In: a label, a value, what to call when it changes. Out: an element.
// Every one is a labelled native control; `commit(value, settled)` hears the new text, "" for none,
// and whether the reader is done with it (a slider that is still held is not).

import { freshId, make } from "./dom.js";
import { mark, words } from "./words.js";

/** A number on stops of a scale, with a box beside it for all others. stops: texts, "" first for auto. */
export function slider({ label, value, stops, auto = mark("auto"), help = "", commit }) {
  const id = freshId("slider");
  const all = stopsWith(stops, value);
  const place = Math.max(0, all.indexOf(value));
  const box = make("input", {
    type: "text",
    inputmode: "numeric",
    class: "slider-box",
    value,
    placeholder: words(auto),
    "aria-label": words(label),
    autocomplete: "off",
    spellcheck: "false",
    onchange: (event) => typed(event.target.value.trim()),
  });
  const typed = (text) => {
    row.classList.toggle("slider-auto", text === "");
    if (all.includes(text)) range.value = String(all.indexOf(text));
    commit(text, true);
  };
  const moved = (settled) => (event) => {
    const text = all[Number(event.target.value)];
    box.value = text;
    row.classList.toggle("slider-auto", text === "");
    event.target.setAttribute("aria-valuetext", text || words(auto));
    commit(text, settled);
  };
  const range = make("input", {
    type: "range",
    id,
    min: 0,
    max: all.length - 1,
    step: 1,
    value: String(place),
    "aria-valuetext": value || words(auto),
    oninput: moved(false),
    onchange: moved(true),
  });
  const row = make(
    "div",
    { class: value ? "field field-slider" : "field field-slider slider-auto", title: help },
    make("label", { for: id }, words(label)),
    range,
    box,
  );
  return row;
}

// A value that is no stop (pp 3, 11008 columns) becomes one, in its order.
function stopsWith(stops, value) {
  if (stops.includes(value) || !/^\d+(\.\d+)?$/.test(value)) return stops;
  return [...stops, value].sort((a, b) => Number(a || -1) - Number(b || -1));
}

/** One of a few: buttons in a row. choices: [value, label] pairs. */
export function segmented({ label, value, choices, commit, hidden = false }) {
  const name = freshId("choice");
  return make(
    "fieldset",
    { class: "field field-segmented" },
    make("legend", { class: hidden ? "spoken" : null }, words(label)),
    make(
      "div",
      { class: "segments" },
      choices.map(([choice, text]) =>
        make(
          "label",
          {},
          make("input", {
            type: "radio",
            name,
            value: choice,
            checked: choice === value,
            onchange: () => commit(choice, true),
          }),
          make("span", {}, words(text)),
        ),
      ),
    ),
  );
}

/** One of several names. choices: [value, label] pairs. */
export function select({ label, value, choices, help = "", commit }) {
  const id = freshId("select");
  const known = choices.some(([choice]) => choice === value) ? choices : [...choices, [value, value]];
  return make(
    "div",
    { class: "field", title: help },
    make("label", { for: id }, words(label)),
    make(
      "select",
      { id, onchange: (event) => commit(event.target.value, true) },
      known.map(([choice, text]) =>
        make("option", { value: choice, selected: choice === value }, words(text)),
      ),
    ),
  );
}

/** Free text. */
export function text({ label, value, placeholder = "", help = "", commit }) {
  const id = freshId("text");
  return make(
    "div",
    { class: "field", title: help },
    make("label", { for: id }, words(label)),
    make("input", {
      type: "text",
      id,
      value,
      placeholder: words(placeholder),
      autocomplete: "off",
      spellcheck: "false",
      onchange: (event) => commit(event.target.value.trim(), true),
    }),
  );
}

/** On or off. */
export function toggle({ label, value, help = "", commit }) {
  const id = freshId("toggle");
  return make(
    "div",
    { class: "field field-toggle", title: help },
    make("label", { for: id }, words(label)),
    make("input", {
      type: "checkbox",
      id,
      class: "switch",
      checked: value === "true",
      onchange: (event) => commit(event.target.checked ? "true" : "", true),
    }),
  );
}
