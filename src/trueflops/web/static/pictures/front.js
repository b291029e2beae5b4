// The Pareto front. Of a search: time against memory, and dollars on the right; a point opens its plan.
// In: "search"."front" of a training answer, or "pareto" of a serving one. Out: svg with points to click.

/* global d3 */
import { digits, show } from "../units.js";
import { inWords } from "../plans.js";
import { area, axis, explore, label, named, round, shownSeconds } from "./drawn.js";

const GIBI = 2 ** 30;
const HEIGHT = 300;
const BOX = { left: 58, right: 74, top: 26, bottom: 40 };

export function draw(element, answer, { words, onPick }) {
  const view = answer.search?.front ? searched(answer, words) : served(answer, words);
  const { points } = view;
  const { svg, width } = area(element, HEIGHT, view.said, "group");
  const x = d3
    .scaleLinear()
    .domain(view.across)
    .range([BOX.left, width - BOX.right])
    .nice();
  const y = d3
    .scaleLinear()
    .domain(view.up)
    .range([HEIGHT - BOX.bottom, BOX.top])
    .nice();
  axis(svg, x, "bottom", {
    ticks: x.ticks(Math.max(3, width / 110)),
    text: view.showX,
    from: BOX.top,
    to: HEIGHT - BOX.bottom,
    offset: HEIGHT - BOX.bottom + 15,
    edge: width,
  });
  axis(svg, y, "left", {
    ticks: y.ticks(6),
    text: view.showY,
    from: BOX.left,
    to: width - BOX.right,
    offset: BOX.left - 7,
  });
  label(svg, width - BOX.right, HEIGHT - 6, view.nameX, { anchor: "end", size: 11, colour: "var(--faint)" });
  label(svg, BOX.left - 7, 10, view.nameY, { size: 11, colour: "var(--faint)" });
  if (view.usdOfY) {
    axis(svg, y, "right", {
      ticks: y.ticks(6),
      text: (at) => show(view.usdOfY(at), "usd"),
      from: width - BOX.right,
      to: width - BOX.right,
      offset: width - BOX.right + 7,
      grid: false,
    });
    label(svg, width, 10, words("dollars for the run"), { anchor: "end", size: 11, colour: "var(--faint)" });
  }
  if (view.limit) {
    svg
      .append("line")
      .attr("x1", x(view.limit))
      .attr("x2", x(view.limit))
      .attr("y1", BOX.top)
      .attr("y2", HEIGHT - BOX.bottom)
      .attr("stroke", "var(--warn)")
      .attr("stroke-dasharray", "4 3");
    label(svg, x(view.limit) - 5, HEIGHT - BOX.bottom - 7, words("all of its memory"), {
      anchor: "end",
      size: 11,
      colour: "var(--warn)",
    });
  }
  svg
    .append("path")
    .attr("fill", "none")
    .attr("stroke", "var(--c1)")
    .attr("stroke-opacity", 0.45)
    .attr("stroke-width", 1.5)
    .attr(
      "d",
      d3
        .line()
        .x((point) => x(point.x))
        .y((point) => y(point.y))
        .curve(view.curve)([...points].sort((a, b) => a.x - b.x)),
    );
  const marks = svg
    .append("g")
    .selectAll("g")
    .data(points)
    .enter()
    .append("g")
    .attr("transform", (point) => `translate(${x(point.x)},${y(point.y)})`)
    .attr("class", "dot clickable");
  marks
    .filter((point) => point.high > point.low)
    .append("line")
    .attr("y1", (point) => y(point.low) - y(point.y))
    .attr("y2", (point) => y(point.high) - y(point.y))
    .attr("stroke", "var(--c1)")
    .attr("stroke-opacity", 0.35)
    .attr("stroke-width", 4)
    .attr("stroke-linecap", "round");
  marks
    .append("circle")
    .attr("r", 9)
    .attr("fill", (point) => (point.best ? "var(--accent)" : "var(--panel)"))
    .attr("stroke", (point) => (point.best ? "var(--accent)" : "var(--c1)"))
    .attr("stroke-width", 1.8);
  marks
    .append("text")
    .attr("text-anchor", "middle")
    .attr("y", 3.8)
    .attr("font-size", 10.5)
    .attr("font-weight", 650)
    .attr("fill", (point) => (point.best ? "var(--on-accent)" : "var(--ink)"))
    .text((point, index) => index + 1);
  marks.each(function each(point) {
    named(d3.select(this), point.name, point.y).attr("data-x", point.x);
  });
  marks.filter((point) => point.best).raise();
  explore(
    marks.nodes(),
    (point) => point.lines,
    (point) => onPick?.(point.picked),
  );
}

function searched(answer, words) {
  const { front } = answer.search;
  const capacity = answer.capacity_bytes;
  const points = front.map((one, index) => ({
    x: one.memory_bytes / GIBI,
    y: one.step_seconds,
    low: one.step_seconds_low,
    high: one.step_seconds_high,
    best: index === 0,
    name: `front.${index}.step_seconds`,
    picked: one.plan_flags ?? one,
    lines: [
      words("{seconds} a step, {memory}", {
        seconds: show(one.step_seconds, "seconds"),
        memory: show(one.memory_bytes, "memory"),
      }),
      one.cost_usd
        ? words("{usd} for the run, MFU {mfu}", {
            usd: show(one.cost_usd, "usd"),
            mfu: `${(100 * one.mfu).toFixed(1)} %`,
          })
        : null,
      inWords(one.plan),
      words("Enter or click opens this plan"),
    ],
  }));
  // A run's dollars are its time times what an hour costs: one axis says both.
  const rate = front[0].cost_usd ? front[0].cost_usd / front[0].step_seconds : null;
  return {
    points,
    limit: capacity / GIBI,
    across: [0, capacity / GIBI],
    curve: d3.curveStepAfter,
    up: [0.92 * d3.min(points, (point) => point.low), d3.max(points, (point) => point.high)],
    showX: round,
    showY: shownSeconds,
    nameX: words("GiB on the fullest accelerator"),
    nameY: words("time of a step"),
    usdOfY: rate && ((seconds) => rate * seconds),
    said: words("{count} plans; the fastest takes {seconds} and {memory}", {
      count: points.length,
      seconds: show(points[0].y, "seconds"),
      memory: show(front[0].memory_bytes, "memory"),
    }),
  };
}

function served(answer, words) {
  const points = answer.pareto.map((one, index) => ({
    x: one.tokens_per_second_per_user,
    y: one.tokens_per_second_per_accelerator,
    name: `pareto.${index}.tokens_per_second_per_accelerator`,
    picked: one.plan ? { plan: one.plan } : one,
    lines: [
      one.words,
      words("{rate} tokens/s for one user, {each} per accelerator", {
        rate: digits(one.tokens_per_second_per_user),
        each: digits(one.tokens_per_second_per_accelerator),
      }),
      words("first token after {ttft}", { ttft: show(one.ttft_seconds, "seconds") }),
    ],
  }));
  return {
    points,
    across: [0, d3.max(points, (point) => point.x)],
    up: [0, d3.max(points, (point) => point.y)],
    curve: d3.curveLinear,
    showX: round,
    showY: round,
    nameX: words("tokens/s for one user"),
    nameY: words("tokens/s per accelerator"),
    said: words("{count} ways to serve, from {slow} to {fast} tokens/s for one user", {
      count: points.length,
      slow: digits(d3.min(points, (point) => point.x)),
      fast: digits(d3.max(points, (point) => point.x)),
    }),
  };
}
