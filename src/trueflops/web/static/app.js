// The page: one state, kept in the address; a form that changes it; an answer that follows.

import { ask, cancel, options as getOptions, search } from "./api.js";
import { answerFrame } from "./answer.js";
import { drawForm, isSearch } from "./ask.js";
import { comparison, remember } from "./compare.js";
import { VIEWS, DEFAULTS } from "./defaults.js";
import { askMore } from "./details.js";
import { fill, make } from "./dom.js";
import * as dropping from "./drop.js";
import { spoken } from "./headline.js";
import { fromFlags } from "./plans.js";
import { applyTheme, languageOf, settings } from "./settings.js";
import { body, MOST_PINS, read, write } from "./state.js";
import { learn, said, words } from "./words.js";

const panes = Object.fromEntries(
  ["views", "settings", "question", "answer", "glance", "spoken"].map((id) => [
    id,
    document.getElementById(id),
  ]),
);
const PREDICTION_MS = 25; // a slider that moves asks at most 40 times a second
const QUIET_MS = 150;
const SEARCH_MS = 600; // a search waits until the hand is still

let options = null;
let state = read(location.hash);
let written = write(state); // the address of the latest step; a slider that moves is none yet
let frame = null; // of the view that is shown
let latest = null; // {envelope, question} of the answer that is shown
let timer = 0;
let asked = 0; // when, by the page's clock
let more = new AbortController(); // of what pictures need beyond the answer
const left = new Map(); // view -> its question when it was last shown
const compared = make("div", { class: "compare-slot" });

/** Change the state; `settled` makes a step that the back button undoes; `then` is what follows. */
function go(change, { settled = true, then = draw } = {}) {
  state = { ...state, ...change };
  const address = write(state);
  if (settled && address !== written) {
    history.pushState(null, "", address);
    written = address;
  }
  then();
}

/** Everything anew: another view, language or step of the history. */
function draw() {
  const focused = focusedField();
  fill(
    panes.views,
    VIEWS.map(([view, text]) =>
      make(
        "button",
        {
          type: "button",
          "aria-current": view === state.view ? "page" : null,
          onclick: () => openView(view),
        },
        words(text),
      ),
    ),
  );
  fill(
    panes.settings,
    settings(state, {
      setLanguage: async (lang) => {
        await learn(lang);
        go({ lang });
      },
      setTheme: (theme) => {
        applyTheme(theme);
        go({ theme: theme || null });
      },
    }),
  );
  drawForm(panes.question, {
    view: state.view,
    question: state.question,
    options,
    dropped: dropping.dropZone(takeFile, options, state.question.on ?? "", (on) =>
      go({ question: on ? { on } : {} }, { then: () => {} }),
    ),
    found: () => ({
      ...(latest?.view === state.view && latest.envelope.answer.plan_flags
        ? fromFlags(latest.envelope.answer.plan_flags)
        : { tp: "1" }),
    }),
    change: (question, settled, redraw) => go({ question }, { settled, then: redraw ? draw : scheduleAsk }),
  });
  refocus(focused);
  if (frame?.view !== state.view || frame.language !== languageOf(state) || state.view === "drop") {
    frame = {
      view: state.view,
      language: languageOf(state),
      ...answerFrame(state.view, { pick, pin, cancel: stop }),
    };
    fill(panes.answer, compared, frame.element);
  }
  drawComparison();
  document.title = `${words(VIEWS.find(([view]) => view === state.view)[1])} · trueflops`;
  if (state.view === "drop") {
    cancel();
    fill(frame.element, make("p", { class: "empty" }, words("What you drop is shown here.")));
  } else scheduleAsk(0);
}

function pick(flags) {
  go({ question: { ...state.question, ...flags } });
}

function stop() {
  cancel();
  panes.answer.removeAttribute("aria-busy");
  frame.refuse(new Error(words("Cancelled. Change anything, or set the plan by hand.")));
}

// Where the focus was, so that a form that is drawn anew does not take it away.
function focusedField() {
  const all = [...panes.question.querySelectorAll("input, select, button, summary")];
  return all.indexOf(document.activeElement);
}

function refocus(index) {
  if (index < 0) return;
  const all = panes.question.querySelectorAll("input, select, button, summary");
  all[Math.min(index, all.length - 1)]?.focus({ preventScroll: true });
}

function openView(view) {
  left.set(state.view, state.question);
  go({ view, question: left.get(view) ?? { ...DEFAULTS[view] } });
}

// The first change is asked at once; only those that follow on its heels wait.
function patience() {
  if (isSearch(state.view, state.question)) return SEARCH_MS;
  return performance.now() - asked > QUIET_MS ? 0 : PREDICTION_MS;
}

function scheduleAsk(wait = patience()) {
  clearTimeout(timer);
  more.abort();
  delete panes.answer.dataset.answered; // what is shown is no longer what is asked
  delete panes.answer.dataset.complete;
  if (state.view !== "drop") timer = setTimeout(answer, wait);
}

/** Ask what the state says, and show the answer unless a newer question has come. */
async function answer() {
  const { view, question } = state;
  const mine = frame;
  asked = performance.now();
  panes.answer.setAttribute("aria-busy", "true");
  try {
    const sent = body(question);
    const searching = isSearch(view, question);
    if (searching) mine.progress();
    const envelope = searching ? await search(view, sent, mine.progress) : await ask(view, sent);
    if (frame !== mine) return;
    latest = { view, question, envelope };
    await mine.update(envelope, question);
    say(spoken(view, envelope.answer));
    panes.answer.dataset.answered = write({ ...state, view, question });
    more = new AbortController();
    const { signal } = more;
    askMore(latest, options, signal, (whole) => {
      latest.whole = whole;
      return mine.redraw(whole);
    }).then(() => {
      if (!signal.aborted) panes.answer.dataset.complete = "true";
    });
  } catch (error) {
    if (error.name === "AbortError" || frame !== mine) return;
    mine.refuse(error);
    say(said(error.message));
  }
  panes.answer.removeAttribute("aria-busy");
}

function say(text) {
  panes.spoken.textContent = text;
  panes.glance.textContent = text;
  panes.glance.hidden = text === "";
}

/** Put the present answer beside others: with the plan that was found, so that it is quick to ask. */
function pin() {
  if (!latest) return;
  const plan = isSearch(latest.view, latest.question) ? fromFlags(latest.envelope.answer.plan_flags) : {};
  const one = { view: latest.view, question: { ...latest.question, ...plan } };
  remember(one, latest.envelope);
  go({ pins: [...state.pins, one].slice(-MOST_PINS) }, { then: drawComparison });
}

async function drawComparison() {
  const { pins } = state;
  const drawn = await comparison(pins, {
    open: ({ view, question }) => go({ view, question }),
    remove: (index) => go({ pins: state.pins.toSpliced(index, 1) }, { then: drawComparison }),
  });
  if (pins === state.pins) fill(compared, drawn);
}

/** A dropped file: a config becomes the model, an answer its question, all else is shown. */
async function takeFile(file) {
  try {
    const known = await dropping.recognise(file, state.view === "drop" ? state.question.on : "");
    if (known.kind === "config" && known.question?.model !== undefined) {
      const view = state.view === "infer" ? "infer" : "train";
      const question = state.view === view ? state.question : DEFAULTS[view];
      go({ view, question: { ...question, model: asText(known.question.model) } });
    } else if (known.kind === "answer" && Object.hasOwn(DEFAULTS, known.question?.command ?? "")) {
      const { command, ...question } = known.question;
      go({
        view: command,
        question: Object.fromEntries(Object.entries(question).map(([key, value]) => [key, asText(value)])),
      });
    } else {
      if (state.view !== "drop") go({ view: "drop", question: {} });
      dropping.found(frame.element, file, known);
    }
  } catch (error) {
    if (state.view !== "drop") go({ view: "drop", question: {} });
    dropping.refused(frame.element, file, error);
  }
}

function asText(value) {
  if (Array.isArray(value)) return value.join(" ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

window.addEventListener("popstate", async () => {
  const before = languageOf(state);
  state = read(location.hash);
  written = write(state);
  applyTheme(state.theme);
  if (languageOf(state) !== before) await learn(languageOf(state));
  draw();
});
// Colours are read when a picture is drawn, so another theme draws them anew.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
let width = 0;
new ResizeObserver(() => {
  const now = panes.answer.clientWidth;
  if (width && now !== width && latest?.view === state.view)
    frame.redraw(latest.whole ?? latest.envelope.answer);
  width = now;
}).observe(panes.answer);

// The address holds the state, so a link into the page moves the focus, not the address.
for (const link of document.querySelectorAll("a[href='#answer']")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    panes.answer.focus();
    panes.answer.scrollIntoView();
  });
}
// On a phone the answer is below the form: a line at the bottom says it until it comes into view.
new IntersectionObserver(([answer]) => document.body.classList.toggle("reading", answer.isIntersecting), {
  rootMargin: "0px 0px -25% 0px",
}).observe(panes.answer);

applyTheme(state.theme);
dropping.listen(takeFile);
[options] = await Promise.all([getOptions(), learn(languageOf(state))]);
draw();
