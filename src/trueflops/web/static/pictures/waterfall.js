// The waterfall: from the advertised rate to the run's own, one bar a loss.
// In: an answer's "waterfall". Out: svg; each bar's ghost is what was lost, the whisker its interval.

/* global d3 */
import { show } from "../units.js";
import { said } from "../words.js";
import { area, hatch, label, named, widthOf } from "./drawn.js";

const ROW = 33;

export function draw(element, answer, { words }) {
  const falls = answer.waterfall;
  const first = falls[0];
  const last = falls[falls.length - 1];
  const summary = words("From {first} advertised to {last}, {share} of it", {
    first: show(first.flop_per_second, "flop_per_second"),
    last: show(last.flop_per_second, "flop_per_second"),
    share: `${((100 * last.flop_per_second) / first.flop_per_second).toFixed(0)} %`,
  });
  const { svg, width } = area(element, falls.length * ROW + 2, summary);
  const lost = hatch(svg, "var(--line)", 5);
  const x = d3.scaleLinear().domain([0, first.flop_per_second]).range([0, width]);
  const widest = d3.max(falls, (fall) => widthOf(show(fall.flop_per_second, "flop_per_second"), 12, 650));
  falls.forEach((fall, index) => {
    const ends = index === 0 || index === falls.length - 1;
    const rate = fall.flop_per_second;
    const before = index ? falls[index - 1].flop_per_second : rate;
    const row = svg.append("g").attr("transform", `translate(0,${index * ROW})`);
    const value = show(rate, "flop_per_second");
    const loss =
      before > rate * 1.0005 ? `−${(100 * (1 - rate / before)).toFixed(before / rate > 1.1 ? 0 : 1)} %` : "";
    const name = words(fall.name);
    label(row, 0, 13, name, { weight: ends ? 650 : 500 });
    const taken = widthOf(name, 12, 650) + 9;
    const room = width - taken - widest - 54;
    label(row, taken, 13, said(fall.why), { colour: "var(--faint)", size: 11.5, room });
    label(row, width - widest - 12, 13, loss, { anchor: "end", size: 11.5, colour: "var(--faint)" });
    named(
      label(row, width, 13, value, { anchor: "end", weight: ends ? 650 : 500 }),
      `waterfall.${fall.name}`,
      rate,
    );
    row
      .append("rect")
      .attr("x", x(rate))
      .attr("y", 19)
      .attr("width", Math.max(x(before) - x(rate), 0))
      .attr("height", 9)
      .attr("fill", lost);
    row
      .append("rect")
      .attr("y", 19)
      .attr("width", x(rate))
      .attr("height", 9)
      .attr("rx", 1.5)
      .attr("fill", ends ? "var(--accent)" : "var(--c1)")
      .attr("fill-opacity", ends ? 1 : 0.62);
    if (fall.high > fall.low) whisker(row, x, fall);
  });
}

function whisker(row, x, fall) {
  const whole = row.append("g").attr("stroke", "var(--ink)").attr("stroke-width", 1.4).attr("stroke-opacity", 0.85);
  named(whole, "interval", fall.low).attr("data-high", fall.high);
  whole.append("line").attr("x1", x(fall.low)).attr("x2", x(fall.high)).attr("y1", 23.5).attr("y2", 23.5);
  for (const end of [fall.low, fall.high]) {
    whole.append("line").attr("x1", x(end)).attr("x2", x(end)).attr("y1", 20.5).attr("y2", 26.5);
  }
}
