// The memory of every pipeline stage over a step: what stays, and activations as tasks come and go.
// In: an answer's "stages" (trees of bytes) and "timeline" (activations held). Out: svg, a row a stage.

/* global d3 */
import { show } from "../units.js";
import { area, axis, explore, label, legend, named, shownSeconds } from "./drawn.js";

const STAYS = [
  ["weights", 1],
  ["gradients", 4],
  ["optimizer states", 5],
];
const LEFT = 66;
const RIGHT = 74;

export function draw(element, answer, { words }) {
  const { timeline, stages, capacity_bytes: capacity } = answer;
  const high = Math.max(24, Math.min(64, 420 / stages.length));
  const rows = stages.map((stage, index) => rowOf(stage, timeline.held[index]));
  const most = Math.max(capacity, ...rows.map((row) => row.peak));
  const fullest = d3.max(rows, (row) => row.peak);
  const said = words("{stages} stages; the fullest holds {most} of {capacity}", {
    stages: stages.length,
    most: show(fullest, "memory"),
    capacity: show(capacity, "memory"),
  });
  const { svg, width } = area(element, rows.length * (high + 8) + 26, said, "group");
  const x = d3
    .scaleLinear()
    .domain([0, timeline.seconds])
    .range([LEFT, width - RIGHT]);
  const y = d3.scaleLinear().domain([0, most]).range([high, 0]);
  const bottom = rows.length * (high + 8);
  axis(svg, x, "bottom", {
    ticks: x.ticks(Math.max(3, width / 160)),
    text: shownSeconds,
    from: 0,
    to: bottom - 4,
    offset: bottom + 12,
    edge: width,
  });
  const groups = svg
    .append("g")
    .selectAll("g")
    .data(rows)
    .enter()
    .append("g")
    .attr("transform", (row, index) => `translate(0,${index * (high + 8)})`);
  groups.each(function each(row, index) {
    const group = d3.select(this);
    group
      .append("rect")
      .attr("x", LEFT)
      .attr("width", width - LEFT - RIGHT)
      .attr("height", high)
      .attr("fill", "transparent");
    let under = 0;
    for (const [colour, bytes] of row.layers) {
      group
        .append("rect")
        .attr("x", LEFT)
        .attr("width", width - LEFT - RIGHT)
        .attr("y", y(under + bytes))
        .attr("height", y(under) - y(under + bytes))
        .attr("fill", `var(--c${colour})`)
        .attr("fill-opacity", 0.42);
      under += bytes;
    }
    group
      .append("path")
      .attr("fill", "var(--c2)")
      .attr("fill-opacity", 0.75)
      .attr(
        "d",
        steps(row, x, (bytes) => y(under + bytes), y(under), timeline.seconds),
      );
    group
      .append("line")
      .attr("x1", LEFT)
      .attr("x2", width - RIGHT)
      .attr("y1", y(capacity))
      .attr("y2", y(capacity))
      .attr("stroke", row.peak > capacity ? "var(--warn)" : "var(--faint)")
      .attr("stroke-dasharray", "4 3");
    label(group, LEFT - 8, high / 2 + 4, words("stage {number}", { number: index }), {
      anchor: "end",
      colour: "var(--soft)",
    });
    named(group, `stage.${index}.activations`, row.activations);
    label(group, width - RIGHT + 8, high / 2 + 4, show(row.peak, "memory"), {
      weight: 550,
      colour: row.peak > capacity ? "var(--warn)" : "var(--ink)",
    });
  });
  explore(groups.nodes(), (row, index) => [
    words("stage {number}", { number: index }),
    ...row.names.map(([name, bytes]) => `${words(name)} ${show(bytes, "memory")}`),
    words("activations at most {bytes}", { bytes: show(row.activations, "memory") }),
  ]);
  element.append(
    legend([
      ...STAYS.map(([name, colour]) => [words(name), `var(--c${colour})`]),
      [words("everything else"), "var(--c8)"],
      [words("activations"), "var(--c2)"],
      [words("dashed: all of its {bytes}", { bytes: show(capacity, "memory") }), "transparent"],
    ]),
  );
}

function rowOf(stage, held) {
  const bytesOf = (name) => stage.parts.find((part) => part.name === name)?.bytes ?? 0;
  const stays = STAYS.map(([name, colour]) => [name, colour, bytesOf(name)]);
  const rest = stage.bytes - bytesOf("activations") - d3.sum(stays, ([, , bytes]) => bytes);
  const layers = [...stays.map(([, colour, bytes]) => [colour, bytes]), [8, rest]];
  const activations = d3.max(held.activation_bytes);
  return {
    held,
    layers,
    activations,
    peak: d3.sum(layers, ([, bytes]) => bytes) + activations,
    names: [...stays.map(([name, , bytes]) => [name, bytes]), ["everything else", rest]],
  };
}

// Held from each moment until the next: a staircase, closed along the line that it stands on.
function steps({ held }, x, y, floor, end) {
  const pieces = [`M${x(0)},${floor}`];
  let last = 0;
  held.from_seconds.forEach((when, index) => {
    const bytes = held.activation_bytes[index];
    pieces.push(`H${x(when).toFixed(1)}V${y(bytes).toFixed(1)}`);
    last = bytes;
  });
  // A step cut into equal stretches holds its last value to the end of the last one.
  const [before, at] = held.from_seconds.slice(-2);
  const until = last > 0 ? x(Math.min(2 * at - before, end)) : null;
  return `${pieces.join("")}${until === null ? "" : `H${until.toFixed(1)}`}V${floor}Z`;
}
