// A slow worker under each way to combine gradients: the rate that is left, and the first steps.
// In: an answer's "modes" and "timeline" (stragglers … --timeline). Out: svg; what a mode loses of the
// rate of healthy workers is hatched, and where a lane is empty its worker waits.

/* global d3 */
import { modeName } from "../sections.js";
import { digits, show } from "../units.js";
import { area, axis, explore, hatch, label, legend, named, shownSeconds, widthOf } from "./drawn.js";

const LEFT = 22; // for the numbers of workers
const LANE = 12;
const HEAD = 36; // a mode's name, its rate and the bar of it
const GAP = 14;

export function draw(element, answer, { words }) {
  const { modes, timeline, ideal_gradients_per_second: ideal } = answer;
  const spansOf = new Map(timeline.modes.map(({ name, spans }) => [name, spans]));
  const block = HEAD + timeline.workers * LANE + GAP;
  const tall = modes.length * block + 20;
  const rated = (mode) => words("{rate} gradients/s", { rate: digits(mode.gradients_per_second) });
  const said = modes.map((mode) => `${modeName(mode)}: ${rated(mode)}`).join(", ");
  const { svg, width } = area(element, tall, said, "group");
  const x = d3
    .scaleLinear()
    .domain([0, timeline.seconds])
    .range([LEFT, width - 2]);
  const most = d3.max([ideal, ...modes.map((mode) => mode.gradients_per_second)]);
  const rate = d3.scaleLinear().domain([0, most]).range([0, width]);
  const gone = hatch(svg, "var(--line)", 5);
  named(svg.append("g"), "stragglers.ideal", ideal);
  axis(svg, x, "bottom", {
    ticks: x.ticks(Math.max(3, width / 150)),
    text: shownSeconds,
    from: 0,
    to: tall - 18,
    offset: tall - 4,
    edge: width,
  });
  modes.forEach((mode, index) => {
    const group = svg.append("g").attr("transform", `translate(0,${index * block})`);
    group.append("rect").attr("width", width).attr("height", HEAD).attr("fill", "var(--panel)"); // over the axis
    head(group, mode, { rate, ideal, gone, width, words, rated: rated(mode) });
    lanes(group, mode, spansOf.get(mode.name), { x, workers: timeline.workers, width });
  });
  element.append(
    legend([
      [words("computes"), "var(--c1)"],
      [words("communicates"), "var(--c2)"],
      [words("waits"), "var(--grid)"],
    ]),
  );
  explore(svg.selectAll(".mode").nodes(), (mode) => [
    modeName(mode),
    rated(mode),
    words("lost: {share}", { share: show(mode.lost, "share") }),
    words("waiting: {share}", { share: show(mode.waiting, "share") }),
    words("thrown away: {share}", { share: show(mode.dropped, "share") }),
    words("stale by {mean}, at most {most}", {
      mean: digits(mode.mean_staleness),
      most: mode.most_staleness,
    }),
  ]);
}

function head(group, mode, { rate, ideal, gone, width, words, rated }) {
  const lost = words("lost: {share}", { share: show(mode.lost, "share") });
  label(group, 0, 13, modeName(mode), { weight: 650 });
  named(label(group, width, 13, rated, { anchor: "end", weight: 550 }), `${mode.name}.rate`, mode.gradients_per_second);
  const taken = widthOf(rated, 12, 550) + 14;
  const shown = label(group, width - taken, 13, lost, { anchor: "end", colour: "var(--faint)", size: 11.5 });
  named(shown, `${mode.name}.lost`, mode.lost);
  const bars = group.append("g").attr("class", "mode").datum(mode);
  const [own, whole] = [rate(mode.gradients_per_second), rate(ideal)];
  bars
    .append("rect")
    .attr("x", own)
    .attr("y", 19)
    .attr("width", Math.max(whole - own, 0))
    .attr("height", 9)
    .attr("fill", gone);
  bars
    .append("rect")
    .attr("y", 19)
    .attr("width", own)
    .attr("height", 9)
    .attr("rx", 1.5)
    .attr("fill", "var(--accent)");
}

function lanes(group, mode, spans, { x, workers, width }) {
  for (const worker of d3.range(workers)) {
    const top = HEAD + worker * LANE;
    label(group, LEFT - 7, top + 9, String(worker), { anchor: "end", size: 10, colour: "var(--faint)" });
    group
      .append("rect")
      .attr("x", LEFT)
      .attr("y", top)
      .attr("width", width - 2 - LEFT)
      .attr("height", LANE - 3)
      .attr("fill", "var(--grid)");
  }
  const [, last] = x.domain();
  group
    .append("g")
    .selectAll("rect")
    .data(spans)
    .enter()
    .append("rect")
    .attr("x", (span) => x(span.start_seconds))
    .attr("y", (span) => HEAD + span.worker * LANE)
    .attr("width", (span) => {
      const wide = x(Math.min(span.end_seconds, last)) - x(span.start_seconds);
      return Math.max(wide > 3 ? wide - 0.8 : wide, 0.6); // where the next step begins is seen
    })
    .attr("height", LANE - 3)
    .attr("fill", (span) => (span.computes ? "var(--c1)" : "var(--c2)"))
    .attr("data-name", (span) => `${mode.name}.${span.worker}.end`)
    .attr("data-value", (span) => span.end_seconds);
}
