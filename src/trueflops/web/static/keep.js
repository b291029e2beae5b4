// What can be taken along of an answer: the command, its files, a pin beside others.
// In: an answer and its question. Out: one bar of buttons.

import { make } from "./dom.js";
import { saveExported, saveJson } from "./export.js";
import { body } from "./state.js";
import { said, words } from "./words.js";

const LAUNCHERS = {
  train: ["megatron", "torchtitan", "deepspeed", "nemo", "accelerate"],
  infer: ["vllm", "sglang", "trtllm", "llamacpp", "dynamo"],
};

export function keepBar(view, envelope, question, pin) {
  const { command, answer } = envelope;
  const name = `trueflops-${view}`;
  const failed = make("span", { class: "keep-failed", role: "alert" });
  const attempt = (work) => async () => {
    failed.textContent = "";
    try {
      await work();
    } catch (error) {
      failed.textContent = said(error.message);
    }
  };
  const button = (text, work, title = "") =>
    make("button", { type: "button", title, onclick: attempt(work) }, text);
  const asked = body(question);
  const launch = LAUNCHERS[view]
    ? make(
        "select",
        {
          "aria-label": words("Launch files"),
          onchange: (event) => {
            const tool = event.target.value;
            event.target.value = "";
            return attempt(() => saveExported("emit", view, { ...asked, tool }, `${tool}.zip`))();
          },
        },
        make("option", { value: "" }, words("Launch files")),
        LAUNCHERS[view].map((tool) => make("option", { value: tool }, tool)),
      )
    : null;
  const copied = button(
    words("Copy"),
    () => copy(command, copied),
    words("Copy the command that gives the same answer"),
  );
  return make(
    "div",
    { class: "keep" },
    make(
      "code",
      {
        class: "keep-command",
        tabindex: "0",
        role: "textbox",
        "aria-readonly": "true",
        "aria-label": words("The command that gives the same answer"),
      },
      command,
    ),
    copied,
    make(
      "span",
      { class: "keep-files" },
      button(words("Pin to compare"), () => pin()),
      button("JSON", () => saveJson(answer, name)),
      button("CSV", () => saveExported("csv", view, asked, `${name}.csv`)),
      view === "train" || view === "infer"
        ? button(
            words("Trace"),
            () => saveExported("trace", view, asked, `${name}-trace.json`),
            words("Timeline for ui.perfetto.dev"),
          )
        : null,
      launch,
    ),
    failed,
  );
}

async function copy(text, button) {
  await navigator.clipboard.writeText(text);
  button.textContent = words("Copied");
  setTimeout(() => {
    button.textContent = words("Copy");
  }, 1500);
}
