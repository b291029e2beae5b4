// The roofline: every op of a step by flop per byte and flop per second, under the chip's roofs.
// In: an answer's "ops" (of a step, or of a decode step and a prefill), or one explained kernel.
// Out: svg, log-log; a dot's area is its share of the time, its whisker the interval of its rate.

/* global d3 */
import { fill, make } from "../dom.js";
import { digits, show, showBetween } from "../units.js";
import { mark } from "../words.js";
import { area, axis, choice, decades, explore, label, legend, named, round, widthOf } from "./drawn.js";
import { explained, OP_COLOURS } from "./why.js";

const HEIGHT = 360;
const BOX = { left: 52, right: 14, top: 22, bottom: 40 };
const PASSES = { decode: mark("Decode"), prefill: mark("Prefill") };
const chosenPass = new WeakMap(); // of an element that is drawn again: what its reader chose

export function draw(element, answer, { words }) {
  const several = answer.ops?.decode ? answer.ops : null;
  const pass = chosenPass.get(element) ?? "decode";
  const { roofs, ops, curves } = several ? several[pass] : (answer.ops ?? explainedKernel(answer));
  const dots = ops
    .filter((op) => op.flop > 0 && op.bytes > 0)
    .map((op) => ({
      ...op,
      x: op.flop / op.bytes,
      y: op.flop / op.seconds,
      whole: op.seconds * op.often,
    }))
    .sort((a, b) => b.whole - a.whole);
  const whole = d3.sum(ops, (op) => op.seconds * op.often);
  const below =
    d3.sum(
      dots.filter((dot) => dot.bound === "memory"),
      (dot) => dot.whole,
    ) / whole;
  const said = words("{count} ops on {chip}; {share} of the time is bound by memory", {
    count: dots.length,
    chip: roofs.accelerator,
    share: `${(100 * below).toFixed(0)} %`,
  });
  const { svg, width } = area(element, HEIGHT, said, "group");
  const ridges = roofs.peaks.map(
    (peak) => peak.datasheet_flop_per_second / roofs.memory.datasheet_bytes_per_second,
  );
  // What takes hardly any time would stretch the axes: it is drawn at their ends.
  const telling = dots.filter((dot) => dot.whole > 1e-3 * whole);
  const x = d3
    .scaleLog()
    .clamp(true)
    .range([BOX.left, width - BOX.right])
    .domain([
      Math.min(
        d3.min(telling, (dot) => dot.x),
        d3.min(ridges) / 10,
      ) / 1.8,
      Math.max(
        d3.max(telling, (dot) => dot.x),
        d3.max(ridges),
      ) * 2.5,
    ]);
  const top = d3.max(roofs.peaks, (peak) => peak.datasheet_flop_per_second);
  const least = Math.min(
    d3.min(telling, (dot) => dot.y),
    roofs.memory.datasheet_bytes_per_second * x.domain()[0],
  );
  const y = d3
    .scaleLog()
    .clamp(true)
    .domain([least / 1.8, top * 1.6])
    .range([HEIGHT - BOX.bottom, BOX.top]);
  axis(svg, x, "bottom", {
    ticks: decades(...x.domain()),
    text: round,
    from: BOX.top,
    to: HEIGHT - BOX.bottom,
    offset: HEIGHT - BOX.bottom + 14,
    edge: width,
  });
  axis(svg, y, "left", {
    ticks: decades(...y.domain()),
    text: (rate) => round(rate / 1e12),
    from: BOX.left,
    to: width - BOX.right,
    offset: BOX.left - 6,
  });
  label(svg, width - BOX.right, HEIGHT - 6, words("flop per byte"), {
    anchor: "end",
    size: 11,
    colour: "var(--faint)",
  });
  label(svg, 0, 10, "TFLOP/s", { size: 11, colour: "var(--faint)" });
  roofs.peaks.forEach((peak) => roofOf(svg, x, y, peak, roofs.memory, words));
  const size = d3.scaleSqrt().domain([0, 1]).range([2.6, 30]);
  const radius = (dot) => (ops.length === 1 ? 7 : size(dot.whole / whole));
  const marks = svg
    .append("g")
    .selectAll("g")
    .data(dots)
    .enter()
    .append("g")
    .attr("transform", (dot) => `translate(${x(dot.x)},${y(dot.y)})`)
    .attr("class", "dot");
  marks
    .append("line")
    .attr("y1", (dot) => y(dot.flop / dot.high) - y(dot.y))
    .attr("y2", (dot) => y(dot.flop / dot.low) - y(dot.y))
    .attr("stroke", "var(--ink)")
    .attr("stroke-opacity", 0.45);
  marks
    .append("circle")
    .attr("r", (dot) => radius(dot))
    .attr("fill", (dot) => `var(--c${OP_COLOURS[dot.kind] ?? 8})`)
    .attr("fill-opacity", 0.5)
    .attr("stroke", (dot) => `var(--c${OP_COLOURS[dot.kind] ?? 8})`);
  marks.each(function each(dot) {
    named(d3.select(this), `op.${dot.name}.${dot.phase}.seconds`, dot.seconds);
  });
  write(svg, dots.slice(0, 8), x, y, radius, width);
  const detail = make("div", { class: "detail", "aria-live": "polite" });
  const open = (dot) =>
    fill(
      detail,
      ...explained(dot, curves[dot.curve], d3.sum(ops, (op) => op.seconds * op.often) / (dot.often || 1), words),
    );
  explore(
    marks.nodes(),
    (dot) => [
      `${dot.name}, ${words(dot.phase.replace("_", " "))}`,
      `${show(dot.y, "flop_per_second")} · ${show(dot.bytes / dot.seconds, "bytes_per_second")}`,
      words("{intensity} flop per byte; bound by {bound}", { intensity: digits(dot.x), bound: words(dot.bound) }),
      words("{share} of the time", { share: `${((100 * dot.whole) / whole).toFixed(1)} %` }),
      `${show(dot.seconds, "seconds")} (${showBetween(dot.low, dot.seconds, dot.high, "seconds")})`,
    ],
    ops.length > 1 ? open : null,
  );
  const kinds = [...new Set(dots.map((dot) => dot.kind.replace(/_.*/, "")))];
  const tools = make(
    "div",
    { class: "picture-tools" },
    legend(kinds.map((kind) => [words(kind), `var(--c${OP_COLOURS[kind] ?? 8})`])),
  );
  if (several) {
    tools.append(
      choice(
        words("Pass"),
        Object.entries(PASSES).map(([value, text]) => [value, words(text)]),
        pass,
        (value) => {
          chosenPass.set(element, value);
          draw(element, answer, { words });
        },
      ),
    );
  }
  element.prepend(tools);
  element.append(detail);
}

// A roof of one dtype: the datasheet's dashed, the delivered one drawn through.
function roofOf(svg, x, y, peak, memory, words) {
  for (const [kind, dashes, ink] of [
    ["datasheet", "5 4", "var(--faint)"],
    ["delivered", null, "var(--soft)"],
  ]) {
    const rate = peak[`${kind}_flop_per_second`];
    const bandwidth = memory[`${kind}_bytes_per_second`];
    if (!rate || !bandwidth) continue;
    const [from, to] = x.domain();
    const ridge = Math.min(Math.max(rate / bandwidth, from), to);
    const line = svg
      .append("path")
      .attr("fill", "none")
      .attr("stroke", ink)
      .attr("stroke-width", 1.6)
      .attr("stroke-dasharray", dashes)
      .attr("d", `M${x(from)},${y(Math.max(from * bandwidth, y.domain()[0]))}L${x(ridge)},${y(rate)}H${x(to)}`);
    named(line, `roof.${peak.dtype}.${kind}`, rate).attr("data-bandwidth", bandwidth);
  }
  // Above the slope no op can lie: there is room for what the roofs are.
  const ridge = x(peak.datasheet_flop_per_second / memory.datasheet_bytes_per_second);
  const said = words("{dtype} {rate}, delivered {delivered}", {
    dtype: peak.dtype,
    rate: show(peak.datasheet_flop_per_second, "flop_per_second"),
    delivered: digits(peak.delivered_flop_per_second / 1e12),
  });
  const fits = ridge - 14 - widthOf(said, 11) > BOX.left;
  label(svg, fits ? ridge - 14 : x.range()[1], y(peak.datasheet_flop_per_second) + (fits ? 1 : -6), said, {
    anchor: "end",
    size: 11,
    colour: "var(--soft)",
  });
  const at = Math.sqrt(x.domain()[0] * x.invert(ridge));
  label(
    svg,
    x(at) - 8,
    y(at * memory.datasheet_bytes_per_second) - 6,
    show(memory.datasheet_bytes_per_second, "bytes_per_second"),
    { anchor: "end", size: 11, colour: "var(--soft)" },
  );
}

// Names over the ops that take longest, where they do not lie on one another.
function write(svg, dots, x, y, radius, width) {
  const taken = [];
  for (const dot of dots) {
    const half = widthOf(dot.name, 11) / 2 + 2;
    const place = {
      half,
      x: Math.min(Math.max(x(dot.x), BOX.left + half), width - half),
      y: y(dot.y) + radius(dot) + 13,
    };
    if (taken.some((other) => Math.abs(other.y - place.y) < 13 && Math.abs(other.x - place.x) < half + other.half))
      continue;
    taken.push(place);
    label(svg, place.x, place.y, dot.name, { size: 11, anchor: "middle" });
  }
}

function explainedKernel(answer) {
  const kind = answer.m === undefined ? "attention" : "matmul";
  const name = kind === "matmul" ? `${answer.m}×${answer.n}×${answer.k}` : kind;
  return {
    roofs: {
      accelerator: answer.on,
      peaks: [
        {
          dtype: answer.compute_dtype ?? "",
          datasheet_flop_per_second: answer.peak_flop_per_second,
          delivered_flop_per_second: answer.delivered_peak_flop_per_second,
        },
      ],
      memory: {
        datasheet_bytes_per_second: answer.bandwidth_bytes_per_second,
        delivered_bytes_per_second: answer.delivered_bandwidth_bytes_per_second,
      },
    },
    ops: [
      {
        name,
        phase: "forward",
        kind,
        often: 1,
        flop: answer.flop,
        bytes: answer.flop / answer.intensity_flop_per_byte,
        bound: answer.bound,
        seconds: answer.seconds.value,
        low: answer.seconds.low,
        high: answer.seconds.high,
      },
    ],
    curves: {},
  };
}
