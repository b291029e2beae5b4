// Latency against load: p50, p90 and p99 of the first token and of each further one, rate by rate.
// In: "loads" of infer --rates. Out: svg, two panels; the dashed line is what can be served at most.

/* global d3 */
import { digits, show } from "../units.js";
import { mark } from "../words.js";
import { area, axis, decades, explore, label, legend, named, round } from "./drawn.js";

const PANEL = 236;
const PANELS = [
  ["ttft_seconds", mark("Time to first token")],
  ["tpot_seconds", mark("Time per output token")],
];
const LINES = [
  ["p50", "var(--c1)"],
  ["p90", "var(--c2)"],
  ["p99", "var(--c3)"],
];

export function draw(element, answer, { words }) {
  const { loads, most_requests_per_second: most } = answer;
  const last = loads[loads.length - 1];
  const said = words("{count} rates up to {rate} requests/s; p99 of the first token from {first} to {last}", {
    count: loads.length,
    rate: digits(last.rate_requests_per_second),
    first: show(loads[0].ttft_seconds.p99, "seconds"),
    last: show(last.ttft_seconds.p99, "seconds"),
  });
  const beside = (element.clientWidth || 560) > 640;
  const { svg, width } = area(element, beside ? PANEL + 16 : 2 * PANEL + 16, said, "group");
  const wide = beside ? width / 2 - 8 : width;
  PANELS.forEach(([name, title], index) => {
    const group = svg
      .append("g")
      .attr("transform", beside ? `translate(${index * (wide + 16)},0)` : `translate(0,${index * PANEL})`);
    panel(group, wide, loads, name, words(title), most, words);
  });
  element.append(legend(LINES.map(([line, colour]) => [line, colour])));
}

function panel(group, wide, loads, name, title, most, words) {
  const box = { left: 56, right: 34, top: 26, bottom: PANEL - 34 };
  const values = loads.flatMap((load) => LINES.map(([line]) => load[name][line]));
  const x = d3
    .scaleLinear()
    .domain([
      0,
      Math.max(
        d3.max(loads, (load) => load.rate_requests_per_second),
        most,
      ) * 1.02,
    ])
    .range([box.left, wide - box.right]);
  const y = d3
    .scaleLog()
    .domain([d3.min(values) / 1.15, d3.max(values) * 1.15])
    .range([box.bottom, box.top]);
  label(group, 0, 12, title, { weight: 550 });
  axis(group, x, "bottom", {
    ticks: x.ticks(6),
    text: round,
    from: box.top,
    to: box.bottom,
    offset: box.bottom + 15,
    edge: wide,
  });
  axis(group, y, "left", {
    ticks: decades(...y.domain()),
    text: (seconds) => show(seconds, "seconds"),
    from: box.left,
    to: wide - box.right,
    offset: box.left - 6,
  });
  label(group, wide - box.right, box.bottom + 29, words("requests sent a second"), {
    anchor: "end",
    size: 11,
    colour: "var(--faint)",
  });
  if (most) {
    group
      .append("line")
      .attr("x1", x(most))
      .attr("x2", x(most))
      .attr("y1", box.top)
      .attr("y2", box.bottom)
      .attr("stroke", "var(--warn)")
      .attr("stroke-dasharray", "4 3");
    label(group, x(most) - 5, box.top + 10, words("served at most {rate}/s", { rate: digits(most) }), {
      anchor: "end",
      size: 11,
      colour: "var(--warn)",
    });
  }
  const at = (load) => x(load.rate_requests_per_second);
  group
    .append("path")
    .attr("fill", "var(--c1)")
    .attr("fill-opacity", 0.09)
    .attr(
      "d",
      d3
        .area()
        .x(at)
        .y0((load) => y(load[name].p50))
        .y1((load) => y(load[name].p99))(loads),
    );
  let above = Infinity;
  for (const [line, colour] of LINES) {
    group
      .append("path")
      .attr("fill", "none")
      .attr("stroke", colour)
      .attr("stroke-width", 2)
      .attr(
        "d",
        d3
          .line()
          .x(at)
          .y((load) => y(load[name][line]))(loads),
      );
    const end = loads[loads.length - 1];
    above = Math.min(y(end[name][line]) + 4, above - 12);
    label(group, at(end) + 8, above, line, { size: 11, colour });
  }
  const stops = group.append("g").selectAll("g").data(loads).enter().append("g").attr("class", "stop");
  stops
    .append("rect")
    .attr("x", (load) => at(load) - 9)
    .attr("width", 18)
    .attr("y", box.top)
    .attr("height", box.bottom - box.top)
    .attr("fill", "transparent");
  stops.each(function each(load) {
    for (const [line, colour] of LINES) {
      named(
        d3
          .select(this)
          .append("circle")
          .attr("cx", at(load))
          .attr("cy", y(load[name][line]))
          .attr("r", 3.4)
          .attr("fill", "var(--panel)")
          .attr("stroke", colour)
          .attr("stroke-width", 2),
        `${name}.${line}.${load.rate_requests_per_second}`,
        load[name][line],
      );
    }
  });
  explore(stops.nodes(), (load) => [
    words("{rate} requests/s sent, {served} served", {
      rate: digits(load.rate_requests_per_second),
      served: digits(load.requests_per_second),
    }),
    ...LINES.map(([line]) => `${line} ${show(load[name][line], "seconds")}`),
    load.in_time ? null : words("not within the limits at p{percentile}", { percentile: load.percentile }),
  ]);
}
