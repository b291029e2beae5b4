// The page's words in the reader's language. English is the key and the fallback.
// In: the table of /api/words/{lang}. Out: words("Step"), and whole documents relabelled.

let table = {};
let templates = []; // of entries that have places for values, the longest first
const found = new Map(); // sentence -> what it was recognised as
const MOST_FOUND = 2000; // a slider moved all day makes new sentences all day

/** Take the words of a language from the server. */
export async function learn(language) {
  table = language === "en" ? {} : await (await fetch(`/api/words/${language}`)).json();
  templates = Object.entries(table)
    .filter(([key]) => key.includes("{"))
    .map(compiled)
    .filter(({ literal }) => literal > 3)
    .sort((a, b) => b.literal - a.literal);
  found.clear();
  document.documentElement.lang = language === "zh" ? "zh-CN" : language;
  for (const element of document.querySelectorAll("[data-words]")) {
    element.textContent = words(element.dataset.words);
  }
  for (const element of document.querySelectorAll("[data-label]")) {
    element.setAttribute("aria-label", words(element.dataset.label));
  }
}

/** A text that is translated where it is shown: a constant's. A test collects them. */
export function mark(text) {
  return text;
}

/** A text in the reader's language; {name} is replaced by what `values` has under that name. */
export function words(text, values = {}) {
  const translated = Object.hasOwn(table, text) ? table[text] : text;
  return translated.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

/** A sentence of an answer, which is English and already has its numbers: the entry of the table
    whose text it is, with those numbers put back. */
export function said(sentence) {
  const text = String(sentence);
  if (!templates.length || Object.hasOwn(table, text)) return words(text);
  if (!found.has(text)) {
    if (found.size >= MOST_FOUND) found.clear();
    found.set(text, hinted(text) ?? recognised(text) ?? listed(text) ?? inPieces(text) ?? text);
  }
  return found.get(text);
}

function recognised(text) {
  for (const { pattern, names, translated } of templates) {
    const match = pattern.exec(text);
    if (!match) continue;
    const values = Object.fromEntries(
      names.map(({ name, quoted }, index) => [name, quoted ? match[index + 1] : said(match[index + 1])]),
    );
    return translated.replace(PLACE, (whole, name) => values[name] ?? whole).replace(BETWEEN, "");
  }
  return null;
}

// "unknown chip 'X' (list them with: trueflops catalog)": a sentence, and a hint behind it.
function hinted(text) {
  const at = text.lastIndexOf(" (");
  const hint = text.slice(at + 1);
  return at > 0 && Object.hasOwn(table, hint) ? said(text.slice(0, at)) + words(hint) : null;
}

// "1, 2, 4 or 8"
function listed(text) {
  const match = /^(\S+(?:, \S+)*) or (\S+)$/u.exec(text);
  if (!match) return null;
  return words("{others} or {last}", { others: match[1].replaceAll(", ", words(", ")), last: match[2] });
}

// "framework usual: compiled kernels" is said in two pieces that are put together with a colon.
function inPieces(text) {
  const at = text.indexOf(": ");
  if (at < 0) return null;
  const [head, rest] = [text.slice(0, at), text.slice(at + 2)];
  const pieces = [said(head), said(rest)];
  return pieces[0] === head && pieces[1] === rest ? null : pieces.join("：");
}

const BETWEEN = /(?<=[\u3400-\u9fff]) (?=[\u3400-\u9fff])/gu; // Chinese needs no space
const PLACE = /\{([^:!}]*)[^}]*\}/g; // {name}, {name:,} and {plan.tp:g}

function compiled([english, translated]) {
  const names = [];
  let literal = 0;
  const pieces = english.split(/(\{[^}]*\})/).map((piece) => {
    if (/^\{.*\}$/.test(piece)) {
      // {name!r} is what somebody wrote, in quotes: 'on' is a field here, and no word of ours
      names.push({ name: /^\{([^:!}]*)/.exec(piece)[1], quoted: piece.includes("!r") });
      return "(.*?)"; // a value may be nothing
    }
    literal += piece.replace(/\W/g, "").length;
    return piece.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  });
  return { pattern: new RegExp(`^${pieces.join("")}$`, "u"), names, translated, literal };
}
