// A value with its interval as a small bar: the line from low to high, a mark at the value.
// In: {value, low, high} and perhaps `limit` (what there is) or `most` (what there can be). Out: svg.

/* global d3 */
import { area, named } from "./drawn.js";

const HEIGHT = 12;

export function draw(element, figure, { words }) {
  const low = figure.low ?? figure.value;
  const high = figure.high ?? figure.value;
  const end = figure.limit ?? figure.most;
  // Without a limit the interval itself fills the width, so that its two sides can be compared.
  const [from, to] =
    end === undefined ? [low - 0.12 * (high - low), high + 0.12 * (high - low)] : [0, Math.max(end, high) * 1.02];
  const { svg, width } = area(element, HEIGHT, words("90 % interval"), "img", 60); // a card is narrow
  if (!(to > from)) return;
  const x = d3
    .scaleLinear()
    .domain([from, to])
    .range([1, width - 1]);
  const over = figure.limit !== undefined && figure.value > figure.limit && figure.dimension === "memory";
  const ink = over ? "var(--warn)" : "var(--accent)";
  const middle = HEIGHT / 2;
  svg
    .append("rect")
    .attr("x", 0)
    .attr("y", middle - 1.5)
    .attr("width", end === undefined ? width : x(end))
    .attr("height", 3)
    .attr("rx", 1.5)
    .attr("fill", "var(--grid)");
  if (end !== undefined) {
    svg
      .append("rect")
      .attr("x", 0)
      .attr("y", middle - 1.5)
      .attr("width", x(figure.value))
      .attr("height", 3)
      .attr("rx", 1.5)
      .attr("fill", ink)
      .attr("fill-opacity", 0.9);
  }
  named(
    svg
      .append("rect")
      .attr("x", x(low))
      .attr("y", middle - 3.5)
      .attr("width", Math.max(x(high) - x(low), 1))
      .attr("height", 7)
      .attr("rx", 3.5)
      .attr("fill", ink)
      .attr("fill-opacity", 0.28),
    "low",
    low,
  ).attr("data-high", high);
  svg
    .append("rect")
    .attr("x", x(figure.value) - 1.25)
    .attr("y", 0)
    .attr("width", 2.5)
    .attr("height", HEIGHT)
    .attr("rx", 1.25)
    .attr("fill", ink);
  if (figure.limit !== undefined) {
    svg
      .append("line")
      .attr("x1", x(figure.limit))
      .attr("x2", x(figure.limit))
      .attr("y1", 1)
      .attr("y2", HEIGHT - 1)
      .attr("stroke", "var(--faint)")
      .attr("stroke-width", 1.5);
  }
}
