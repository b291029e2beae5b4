// Language and theme. In: what the address says, what the browser prefers. Out: two small switches.

import { make } from "./dom.js";
import { mark, words } from "./words.js";

const LANGUAGES = [
  ["en", "English"],
  ["zh", "中文"],
];
const THEMES = [
  ["", mark("System")],
  ["light", mark("Light")],
  ["dark", mark("Dark")],
];

/** The language of an address, or the browser's, or English. */
export function languageOf(state) {
  const known = LANGUAGES.map(([code]) => code);
  const wanted = [state.lang, ...navigator.languages.map((tag) => tag.slice(0, 2))];
  return wanted.find((code) => known.includes(code)) ?? "en";
}

/** Take the theme of an address; "" follows the system. */
export function applyTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

export function settings(state, { setLanguage, setTheme }) {
  const language = languageOf(state);
  return [
    make(
      "div",
      { class: "segments", role: "group", "aria-label": words("Language") },
      LANGUAGES.map(([code, name]) =>
        make(
          "button",
          {
            type: "button",
            lang: code === "zh" ? "zh-CN" : "en",
            "aria-pressed": String(code === language),
            onclick: () => setLanguage(code),
          },
          name,
        ),
      ),
    ),
    make(
      "select",
      { "aria-label": words("Theme"), onchange: (event) => setTheme(event.target.value) },
      THEMES.map(([value, text]) =>
        make("option", { value, selected: (state.theme ?? "") === value }, words(text)),
      ),
    ),
  ];
}
