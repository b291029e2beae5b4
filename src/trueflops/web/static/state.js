// What is asked, and in which words: the whole state of the page, kept in its address.
// #train?model=Llama-3.1-70B&on=64xH100&tp=8&lang=zh&pin=train%3Fmodel%3D… : keys are flags' names.

import { DEFAULTS } from "./defaults.js";

const OWN = ["lang", "theme", "pin"]; // keys that are not flags
export const MOST_PINS = 4;

/** {view, question, pins, lang, theme} of an address's part after #. */
export function read(hash) {
  const [view, query = ""] = split(hash.replace(/^#\/?/, ""));
  const given = new URLSearchParams(query);
  const known = Object.hasOwn(DEFAULTS, view);
  const question = Object.fromEntries([...given].filter(([key]) => !OWN.includes(key)));
  return {
    view: known ? view : "train",
    question: known && Object.keys(question).length ? question : { ...DEFAULTS[known ? view : "train"] },
    pins: given
      .getAll("pin")
      .slice(0, MOST_PINS)
      .map(readPin)
      .filter((pin) => pin !== null),
    lang: given.get("lang"),
    theme: given.get("theme"),
  };
}

/** The same as text; what nobody chose is left out. */
export function write({ view, question, pins, lang, theme }) {
  const given = new URLSearchParams(question);
  for (const pin of pins) given.append("pin", `${pin.view}?${new URLSearchParams(pin.question)}`);
  if (lang) given.set("lang", lang);
  if (theme) given.set("theme", theme);
  // Readable where the standard allows it: spaces, commas, colons and slashes need no escape.
  const text = given.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");
  return text ? `#${view}?${text}` : `#${view}`;
}

/** What the API is sent: numbers as numbers, switches as booleans, a dropped config as an object. */
export function body(question) {
  return Object.fromEntries(Object.entries(question).map(([key, text]) => [key, valueOf(key, text)]));
}

function valueOf(key, text) {
  if (text === "true" || text === "false") return text === "true";
  if (/^-?\d{1,15}(\.\d+)?$/.test(text)) return Number(text);
  if (key === "model" && text.startsWith("{")) return asObject(text);
  if (key === "chips") return text.split(/[\s,]+/).filter(Boolean);
  return text;
}

function asObject(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text; // the server says what is wrong with it
  }
}

function readPin(text) {
  const [view, query] = split(text);
  return Object.hasOwn(DEFAULTS, view) ? { view, question: Object.fromEntries(new URLSearchParams(query)) } : null;
}

function split(text) {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}
