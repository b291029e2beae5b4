// Files that a reader drops on the page. In: a File. Out: what the server recognised it as, shown.

import { drop } from "./api.js";
import { droppedView } from "./dropped.js";
import { fill, freshId, make } from "./dom.js";
import { picker } from "./picker.js";
import { mark, said, words } from "./words.js";

/** What can be dropped, with a button for those who cannot drag. */
export function dropZone(take, options, on, setOn) {
  const id = freshId("file");
  return make(
    "div",
    { class: "zone" },
    make("p", { class: "zone-title" }, words("Drop a file anywhere on this page")),
    make(
      "ul",
      {},
      Object.entries({
        "config.json": mark("a model of your own"),
        "trace.json": mark("a profiler's trace: why a run is slow"),
        "profile.json": mark("a measured profile"),
        "runs.csv": mark("measured runs, to verify predictions"),
        "answer.json": mark("a captured answer: its question opens"),
      }).map(([name, text]) => make("li", {}, make("code", {}, name), " ", words(text))),
    ),
    make("label", { for: id, class: "button" }, words("Choose a file")),
    make("input", {
      type: "file",
      id,
      class: "zone-input",
      onchange: (event) => event.target.files[0] && take(event.target.files[0]),
    }),
    picker({
      label: mark("Chip of a trace"),
      value: on,
      names: options.accelerators,
      placeholder: mark("as it says"),
      commit: setOn,
    }),
    make(
      "p",
      { class: "faint" },
      words("It stays on this machine: the server is the one that serves this page."),
    ),
  );
}

/** Take files that are dropped anywhere. */
export function listen(take) {
  const stop = (event) => event.preventDefault();
  document.addEventListener("dragover", (event) => {
    stop(event);
    document.body.classList.add("dragging");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dragging");
  });
  document.addEventListener("drop", (event) => {
    stop(event);
    document.body.classList.remove("dragging");
    const file = event.dataTransfer?.files[0];
    if (file) take(file);
  });
}

/** Ask the server what a file is. */
export async function recognise(file, on) {
  return drop(file, on);
}

/** What was found in it. */
export function found(pane, file, known) {
  fill(pane, droppedView(file.name, known));
}

/** Why it was refused. */
export function refused(pane, file, error) {
  fill(
    pane,
    make(
      "div",
      { class: "answer-error", role: "alert" },
      make(
        "p",
        { class: "refusal" },
        // The command line names the file itself where it can say where in it the trouble is.
        error.message.startsWith(file.name) ? null : make("strong", {}, file.name),
        said(error.message),
        error.code ? make("code", {}, error.code) : null,
      ),
    ),
  );
}
