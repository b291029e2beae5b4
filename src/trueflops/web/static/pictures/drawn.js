// What all pictures share: a drawing area, axes, marks that a test can read, a tip, keys.
// In: an element that the page gives. Out: selections of d3 (v5, a global that the page loads).

/* global d3 */
import { fill, make } from "../dom.js";
import { show } from "../units.js";

/** Least width of a drawing; narrower places scroll. */
const NARROWEST = 260;

/** The element emptied, with one svg as wide as it is. `role` is "group" where parts can be focused. */
export function area(element, height, label, role = "img", narrowest = NARROWEST) {
  const width = Math.max(Math.floor(element.clientWidth || 560), narrowest);
  const svg = d3
    .create("svg")
    .attr("viewBox", `0 0 ${width} ${height}`)
    .attr("width", width)
    .attr("height", height)
    .attr("role", role)
    .attr("aria-label", label)
    .attr("fill", "var(--ink)")
    .attr("font-size", 12);
  fill(element, svg.node());
  return { svg, width, height };
}

/** Mark a drawn value with its name and all its digits. */
export function named(selection, name, value) {
  return selection.attr("data-name", name).attr("data-value", value);
}

/** A line of text; what does not fit so many pixels is cut. */
export function label(
  parent,
  x,
  y,
  text,
  { anchor = "start", size = 12, weight = 400, colour = "var(--ink)", room = Infinity } = {},
) {
  return parent
    .append("text")
    .attr("x", x)
    .attr("y", y)
    .attr("text-anchor", anchor)
    .attr("font-size", size)
    .attr("font-weight", weight)
    .attr("fill", colour)
    .text(cut(text, room, size, weight));
}

/** A text shortened to so many pixels. */
export function cut(text, room, size = 12, weight = 400) {
  if (room === Infinity || widthOf(text, size, weight) <= room) return text;
  let kept = text;
  while (kept && widthOf(`${kept}…`, size, weight) > room) kept = kept.slice(0, -1);
  return kept ? `${kept.trimEnd()}…` : "";
}

let pen = null;

/** Pixels that a text takes, asked of a canvas: asking the page would lay it out again each time. */
export function widthOf(text, size = 12, weight = 400) {
  pen ??= document.createElement("canvas").getContext("2d");
  pen.font = `${weight} ${size}px ${family()}`;
  return pen.measureText(text).width;
}

let known = "";
const family = () => {
  known ||= getComputedStyle(document.body).fontFamily;
  return known;
};

const rounded = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });

/** A round value of an axis: 0, 2, 2.5, 1,000. */
export function round(value) {
  return rounded.format(value);
}

/** Seconds of an axis, whose first has no unit. */
export function shownSeconds(value) {
  return value ? show(value, "seconds") : "0";
}

/** Hatching under a name that no other svg of the page has: for what is free, lost or too much. */
let hatchings = 0;
export function hatch(svg, colour, gap = 6) {
  hatchings += 1;
  const id = `hatch-${hatchings}`;
  const pattern = svg
    .append("defs")
    .append("pattern")
    .attr("id", id)
    .attr("width", gap)
    .attr("height", gap)
    .attr("patternUnits", "userSpaceOnUse")
    .attr("patternTransform", "rotate(45)");
  pattern.append("line").attr("y2", gap).attr("stroke", colour).attr("stroke-width", 1.4);
  return `url(#${id})`;
}

/** Thin lines and small labels at round values: `at` "bottom", "left" or "right" of a box. */
export function axis(
  parent,
  scale,
  at,
  { ticks, text, from = 0, to = 0, offset = 0, grid = true, edge = Infinity },
) {
  const across = at === "bottom";
  const group = parent.append("g").attr("class", "axis").attr("font-size", 11).attr("fill", "var(--faint)");
  for (const tick of ticks) {
    const place = scale(tick);
    const line = group.append("line").attr("stroke", "var(--grid)");
    if (across)
      line
        .attr("x1", place)
        .attr("x2", place)
        .attr("y1", from)
        .attr("y2", grid ? to : to + 4);
    else
      line
        .attr("y1", place)
        .attr("y2", place)
        .attr("x1", grid ? from : to)
        .attr("x2", to);
    const said = text(tick);
    const beyond = across && place + widthOf(said, 11) / 2 > edge; // of the drawing: pushed back in
    group
      .append("text")
      .text(said)
      .attr("x", beyond ? edge : across ? place : offset)
      .attr("y", across ? offset : place + 3.5)
      .attr("text-anchor", beyond || at === "left" ? "end" : across ? "middle" : "start");
  }
  return group;
}

/** Powers of ten between two values, and 2 and 5 times them where there are few. */
export function decades(low, high) {
  const powers = d3.range(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)) + 1);
  const wide = high / low;
  const factors =
    wide > 2000 ? [1] : wide > 60 ? [1, 3] : wide > 4 ? [1, 2, 5] : [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];
  return powers
    .flatMap((power) => factors.map((factor) => factor * 10 ** power))
    .filter((value) => value >= low * 0.999 && value <= high * 1.001);
}

/** A row of small coloured names. */
export function legend(items) {
  return make(
    "ul",
    { class: "legend" },
    items.map(([name, colour]) => {
      const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = colour;
      return make("li", {}, swatch, name);
    }),
  );
}

/** Buttons of which one is pressed. */
export function choice(name, options, chosen, onChoose) {
  return make(
    "div",
    { class: "segments picture-choice", role: "group", "aria-label": name },
    options.map(([value, text]) =>
      make(
        "button",
        {
          type: "button",
          "aria-pressed": String(value === chosen),
          onclick: () => onChoose(value),
        },
        text,
      ),
    ),
  );
}

/** A button with a sign, and its name for those who do not see it. */
export function tool(sign, name, onclick) {
  return make("button", { type: "button", class: "tool", title: name, "aria-label": name, onclick }, sign);
}

let tip = null;

/** Lines beside a place on the screen; the first is a title. */
export function showTip(place, lines) {
  tip ??= document.body.appendChild(make("div", { class: "tip", role: "tooltip", id: "picture-tip" }));
  fill(
    tip,
    lines.filter(Boolean).map((line, index) => make(index ? "p" : "strong", {}, line)),
  );
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = place.right + 10 + width > window.innerWidth;
  const left = right ? Math.max(place.left - width - 10, 4) : place.right + 10;
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(4, Math.min(place.top - 4, window.innerHeight - height - 4))}px`;
}

export function hideTip() {
  if (tip) tip.hidden = true;
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
document.addEventListener("scroll", hideTip, { passive: true, capture: true });

/** Parts that show a tip under the pointer and with the keyboard: one stop of Tab, arrows go on. */
export function explore(nodes, linesOf, onEnter = null) {
  const all = [...nodes];
  all.forEach((node, index) => {
    node.setAttribute("tabindex", index ? "-1" : "0");
    const data = d3.select(node).datum();
    const lines = () => linesOf(data, index);
    if (!node.hasAttribute("role")) node.setAttribute("role", onEnter ? "button" : "img");
    node.setAttribute("aria-label", lines().filter(Boolean).join(", "));
    const open = () => showTip(node.getBoundingClientRect(), lines());
    node.addEventListener("pointerenter", open);
    node.addEventListener("pointerleave", hideTip);
    node.addEventListener("focus", open);
    node.addEventListener("blur", hideTip);
    if (onEnter)
      node.addEventListener("click", () => {
        hideTip();
        onEnter(data);
      });
    node.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const to =
        event.key === "Home"
          ? 0
          : event.key === "End"
            ? all.length - 1
            : step
              ? (index + step + all.length) % all.length
              : null;
      if (to !== null) {
        event.preventDefault();
        node.setAttribute("tabindex", "-1");
        all[to].setAttribute("tabindex", "0");
        all[to].focus();
      } else if (onEnter && (event.key === "Enter" || event.key === " ")) {
        event.preventDefault();
        hideTip();
        onEnter(data);
      }
    });
  });
}
