// The memory of one accelerator as a treemap: what fills it, what is free, what is too much.
// In: an answer's "memory" and "capacity_bytes". Out: svg; left to right is the whole, so that the
// part that is filled, the interval of the sum and the capacity lie on one scale.

/* global d3 */
import { show, showBetween } from "../units.js";
import { area, explore, hatch, label, named, widthOf } from "./drawn.js";

const HEIGHT = 250;
const MAP = 214;
const COLOURS = {
  weights: 1,
  gradients: 4,
  "optimizer states": 5,
  activations: 2,
  "logits and loss": 6,
  "working tensors": 3,
  "KV cache": 2,
  "communication buffers": 7,
};

export function draw(element, answer, { words }) {
  const { memory, capacity_bytes: capacity } = answer;
  const whole = Math.max(capacity, memory.bytes);
  const over = memory.bytes - capacity;
  const said =
    over > 0
      ? words("{used} of {capacity}: {over} too many", {
          used: show(memory.bytes, "memory"),
          capacity: show(capacity, "memory"),
          over: show(over, "memory"),
        })
      : words("{used} of {capacity} used, {free} free", {
          used: show(memory.bytes, "memory"),
          capacity: show(capacity, "memory"),
          free: show(-over, "memory"),
        });
  const { svg, width } = area(element, HEIGHT, said, "group");
  const x = d3.scaleLinear().domain([0, whole]).range([0, width]);
  const parts = (memory.parts ?? [memory]).filter((part) => part.bytes > 0);
  const root = d3
    .hierarchy({ children: parts })
    .sum((part) => part.bytes ?? 0)
    .sort((a, b) => b.value - a.value);
  d3
    .treemap()
    .size([x(memory.bytes), MAP])
    .paddingInner(2)
    .tile(d3.treemapSquarify.ratio(1.2))(root);
  if (over < 0) free(svg, x, memory.bytes, capacity, words);
  const cells = svg
    .append("g")
    .selectAll("g")
    .data(root.leaves())
    .enter()
    .append("g")
    .attr("transform", (cell) => `translate(${cell.x0},${cell.y0})`);
  cells
    .append("rect")
    .attr("width", (cell) => Math.max(cell.x1 - cell.x0, 0.5))
    .attr("height", (cell) => Math.max(cell.y1 - cell.y0, 0.5))
    .attr("rx", 2)
    .attr("fill", (cell) => `var(--c${COLOURS[cell.data.name] ?? 8})`)
    .attr("fill-opacity", 0.3)
    .attr("stroke", (cell) => `var(--c${COLOURS[cell.data.name] ?? 8})`)
    .attr("stroke-width", 1);
  cells.each(function write(cell) {
    const group = named(d3.select(this), `memory.${cell.data.name}`, cell.data.bytes);
    const [wide, high] = [cell.x1 - cell.x0 - 12, cell.y1 - cell.y0];
    if (high < 20 || wide < 26) return;
    label(group, 7, 17, words(cell.data.name), { room: wide, weight: 550 });
    const size = show(cell.data.bytes, "memory");
    if (high > 38 && widthOf(size) <= wide) label(group, 7, 33, size, { colour: "var(--soft)" });
  });
  explore(cells.nodes(), (cell) => [
    words(cell.data.name),
    show(cell.data.bytes, "memory"),
    cell.data.high > cell.data.low
      ? words("90 % between {interval}", {
          interval: showBetween(cell.data.low, cell.data.bytes, cell.data.high, "memory"),
        })
      : null,
  ]);
  if (over > 0) {
    svg
      .append("rect")
      .attr("x", x(capacity))
      .attr("width", x(memory.bytes) - x(capacity))
      .attr("height", MAP)
      .attr("fill", hatch(svg, "var(--warn)", 7))
      .attr("fill-opacity", 0.75)
      .attr("pointer-events", "none");
  }
  svg
    .append("line")
    .attr("x1", x(capacity) - 0.75)
    .attr("x2", x(capacity) - 0.75)
    .attr("y2", MAP)
    .attr("stroke", over > 0 ? "var(--warn)" : "var(--faint)")
    .attr("stroke-width", 1.5);
  interval(svg, x, memory);
  label(svg, 0, HEIGHT - 4, said, {
    size: 11.5,
    colour: over > 0 ? "var(--warn)" : "var(--soft)",
    room: width,
    weight: over > 0 ? 600 : 400,
  });
  named(svg.append("g"), "memory", memory.bytes);
  named(svg.append("g"), "capacity_bytes", capacity);
}

function free(svg, x, used, capacity, words) {
  const [left, wide] = [x(used) + 2, x(capacity) - x(used) - 2];
  if (wide <= 0) return;
  svg
    .append("rect")
    .attr("x", left)
    .attr("width", wide)
    .attr("height", MAP)
    .attr("rx", 2)
    .attr("fill", hatch(svg, "var(--line)", 7));
  const size = show(capacity - used, "memory");
  if (wide < widthOf(size) + 12) return;
  const middle = left + wide / 2;
  svg
    .append("rect")
    .attr("x", middle - widthOf(size) / 2 - 8)
    .attr("y", MAP / 2 - 20)
    .attr("width", widthOf(size) + 16)
    .attr("height", 40)
    .attr("rx", 4)
    .attr("fill", "var(--panel)");
  label(svg, middle, MAP / 2 - 3, words("free"), { anchor: "middle", colour: "var(--faint)" });
  label(svg, middle, MAP / 2 + 13, size, { anchor: "middle", colour: "var(--soft)" });
}

// The sum may be less or more: a line under the map, from its low to its high.
function interval(svg, x, memory) {
  const end = (bytes) => Math.min(x(bytes), x.range()[1]);
  const line = svg.append("g").attr("stroke", "var(--ink)").attr("stroke-width", 1.4);
  named(line, "interval", memory.low).attr("data-high", memory.high);
  line
    .append("line")
    .attr("x1", end(memory.low))
    .attr("x2", end(memory.high))
    .attr("y1", MAP + 8)
    .attr("y2", MAP + 8);
  for (const bytes of [memory.low, memory.bytes, memory.high]) {
    line
      .append("line")
      .attr("x1", end(bytes))
      .attr("x2", end(bytes))
      .attr("y1", MAP + (bytes === memory.bytes ? 3 : 5))
      .attr("y2", MAP + (bytes === memory.bytes ? 13 : 11));
  }
}
