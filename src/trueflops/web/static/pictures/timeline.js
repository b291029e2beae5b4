// The timeline of a step: a lane for what each stage computes, its collectives and its messages.
// In: an answer's "timeline" and, for why something takes what it takes, "ops". Out: svg and, under
// it, the task that was chosen. Spans of one kind are one path, so that thousands are drawn at once.

/* global d3 */
import { fill, make } from "../dom.js";
import { show } from "../units.js";
import { area, axis, hatch, label, legend, named, shownSeconds, tool } from "./drawn.js";
import { why } from "./why.js";

const KINDS = {
  forward: 1,
  backward: 4,
  "input gradient": 4,
  "weight gradient": 5,
  "forward and backward": 7,
  "all-to-all": 2,
  collective: 2,
  send: 8,
  update: 6,
};
const LEFT = 62;
const HIGH = { 0: 20, 1: 8, 2: 5, 3: 5 }; // pixels of a lane: compute, collectives, to the next, back
const CLOSEST = 2000; // times as near as the whole step

export function draw(element, answer, { words }) {
  const { timeline } = answer;
  const spans = rowsOf(timeline.spans);
  const lanes = lanesOf(spans);
  const tall = lanes.length ? lanes[lanes.length - 1].y + lanes[lanes.length - 1].high : 20;
  const said = words("One step of {seconds} on {stages} stages; arrows choose a task, + and − zoom", {
    seconds: show(timeline.seconds, "seconds"),
    stages: new Set(spans.map((span) => span.stage)).size,
  });
  const { svg, width } = area(element, tall + 26, said, "application");
  svg.attr("tabindex", 0).attr("class", "timeline");
  named(svg.append("g"), "timeline.seconds", timeline.seconds);
  const clip = `clip-${Math.random().toString(36).slice(2)}`;
  svg
    .append("clipPath")
    .attr("id", clip)
    .append("rect")
    .attr("x", LEFT - 5)
    .attr("width", width - LEFT + 5)
    .attr("height", tall + 26);
  const x = d3
    .scaleLinear()
    .domain([0, timeline.seconds])
    .range([LEFT, width - 4]);
  const under = svg.append("g").attr("clip-path", `url(#${clip})`);
  const drawn = svg.append("g").attr("clip-path", `url(#${clip})`);
  const chosenMark = svg
    .append("g")
    .attr("clip-path", `url(#${clip})`)
    .append("rect")
    .attr("fill", "none")
    .attr("stroke", "var(--ink)")
    .attr("stroke-width", 2)
    .attr("visibility", "hidden");
  for (const lane of lanes.filter(({ lane: kind }) => kind === 0)) {
    label(svg, LEFT - 8, lane.y + 14, words("stage {number}", { number: lane.stage }), {
      anchor: "end",
      colour: "var(--soft)",
    });
  }
  const gap = timeline.left_out ? hatch(svg, "var(--line)", 6) : null;
  const detail = make("div", { class: "detail", "aria-live": "polite" });
  let now = x;
  let chosen = null;

  function render() {
    under.selectAll("*").remove();
    drawn.selectAll("*").remove();
    axis(under, now, "bottom", {
      ticks: now.ticks(Math.max(3, width / 150)),
      text: shownSeconds,
      from: 0,
      to: tall + 2,
      offset: tall + 18,
      edge: width,
    });
    const [from, to] = now.domain();
    const paths = new Map();
    const texts = [];
    const add = (kind, left, top, wide, high) =>
      paths.set(
        kind,
        `${paths.get(kind) ?? ""}M${left.toFixed(1)},${top.toFixed(1)}h${wide.toFixed(1)}v${high.toFixed(1)}h${(-wide).toFixed(1)}z`,
      );
    const pixel = now.invert(1) - now.invert(0); // seconds
    for (const lane of lanes) {
      const crowded = new Map(); // pixel -> seconds by kind, of spans too short to be drawn alone
      for (const span of lane.spans) {
        if (span.end < from || span.start > to) continue;
        const left = Math.max(now(span.start), LEFT - 2);
        const wide = Math.min(now(span.end), width + 2) - left;
        if (wide < 1) {
          const column = crowded.get(Math.floor(left)) ?? new Map();
          crowded.set(
            Math.floor(left),
            column.set(span.kind, (column.get(span.kind) ?? 0) + span.end - span.start),
          );
          continue;
        }
        add(span.kind, left, lane.y, wide > 3 ? wide - 0.7 : wide, lane.high);
        if (lane.lane === 0 && wide > 15 && texts.length < 400)
          texts.push([left + wide / 2, lane.y + 14, span.batch]);
      }
      for (const [left, column] of crowded) {
        let top = lane.y; // each kind as high as its share of the pixel's time
        for (const [kind, seconds] of [...column].sort(([a], [b]) => a.localeCompare(b))) {
          // A message is far shorter than a pixel: that there is one is what its lane shows.
          const high = lane.lane === 0 ? Math.max(lane.high * Math.min(seconds / pixel, 1), 1) : lane.high;
          add(kind, left, top, 1, high);
          top += high;
        }
      }
    }
    for (const [kind, path] of paths) {
      drawn
        .append("path")
        .attr("d", path)
        .attr("fill", `var(--c${KINDS[kind] ?? 8})`)
        .attr("fill-opacity", kind === "send" ? 0.55 : 0.8);
    }
    drawn
      .append("g")
      .attr("font-size", 10.5)
      .attr("fill", "var(--panel)")
      .attr("text-anchor", "middle")
      .attr("font-weight", 600)
      .selectAll("text")
      .data(texts)
      .enter()
      .append("text")
      .attr("x", ([left]) => left)
      .attr("y", ([, top]) => top)
      .text(([, , text]) => text);
    if (gap) leftOut();
    place();
  }

  function leftOut() {
    const { from_seconds: from, until_seconds: until, spans: count } = timeline.left_out;
    drawn
      .append("rect")
      .attr("x", now(from))
      .attr("width", Math.max(now(until) - now(from), 0))
      .attr("height", tall)
      .attr("fill", "var(--panel)");
    drawn
      .append("rect")
      .attr("x", now(from))
      .attr("width", Math.max(now(until) - now(from), 0))
      .attr("height", tall)
      .attr("fill", gap);
    label(
      drawn,
      (now(from) + now(until)) / 2,
      tall / 2 + 4,
      words("{count} more like these", { count: count.toLocaleString("en-US") }),
      { anchor: "middle", colour: "var(--soft)", room: now(until) - now(from) - 10 },
    );
  }

  function place() {
    chosenMark.attr("visibility", chosen ? "visible" : "hidden");
    if (!chosen) return;
    const lane = lanes.find(({ spans: all }) => all.includes(chosen));
    chosenMark
      .attr("x", now(chosen.start))
      .attr("y", lane.y - 1)
      .attr("height", lane.high + 2)
      .attr("width", Math.max(now(chosen.end) - now(chosen.start), 2))
      .attr("rx", 2);
  }

  function choose(span, follow) {
    chosen = span;
    if (span && follow) keepInSight(span);
    place();
    fill(
      detail,
      span
        ? about(span, answer, words)
        : make("p", { class: "hint" }, words("Choose a task to see why it takes what it takes.")),
    );
  }

  const zoom = d3
    .zoom()
    .scaleExtent([1, CLOSEST])
    .translateExtent([
      [LEFT, 0],
      [width - 4, tall],
    ])
    .extent([
      [LEFT, 0],
      [width - 4, tall],
    ])
    .filter(
      () =>
        !d3.event.button &&
        (d3.event.type !== "wheel" || d3.event.ctrlKey || d3.event.metaKey || d3.event.shiftKey),
    )
    .on("zoom", () => {
      now = d3.event.transform.rescaleX(x);
      render();
    });
  const by = (factor) =>
    svg.call(zoom.scaleBy, factor, chosen ? [clamp(now((chosen.start + chosen.end) / 2)), 0] : undefined);
  const pan = (share) => svg.call(zoom.translateBy, (share * (width - LEFT)) / d3.zoomTransform(svg.node()).k, 0);
  const clamp = (at) => Math.min(Math.max(at, LEFT), width - 4);
  const whole = () => svg.call(zoom.transform, d3.zoomIdentity);
  function keepInSight(span) {
    const [from, to] = now.domain();
    if (span.start < from || span.end > to) svg.call(zoom.translateTo, x((span.start + span.end) / 2), 0);
  }

  svg
    .call(zoom)
    .on("dblclick.zoom", null)
    .on("click", () => {
      const [left, top] = d3.mouse(svg.node());
      choose(hit(lanes, now.invert(left), top, now.invert(left + 3) - now.invert(left)), false);
    });
  svg.node().addEventListener("keydown", (event) => {
    const act = {
      "+": () => by(1.6),
      "=": () => by(1.6),
      "-": () => by(1 / 1.6),
      0: whole,
      Home: whole,
      PageUp: () => pan(0.5),
      PageDown: () => pan(-0.5),
      ArrowRight: () => choose(beside(lanes, chosen, 1), true),
      ArrowLeft: () => choose(beside(lanes, chosen, -1), true),
      ArrowDown: () => choose(across(lanes, chosen, 1), true),
      ArrowUp: () => choose(across(lanes, chosen, -1), true),
      Escape: () => choose(null, false),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  const kinds = [...new Set(spans.map((span) => span.kind))];
  element.prepend(
    make(
      "div",
      { class: "picture-tools" },
      legend(kinds.map((kind) => [words(kind), `var(--c${KINDS[kind] ?? 8})`])),
      make(
        "span",
        { class: "tools" },
        tool("−", words("Zoom out"), () => by(1 / 1.6)),
        tool("+", words("Zoom in"), () => by(1.6)),
        tool("◂", words("Earlier"), () => pan(0.5)),
        tool("▸", words("Later"), () => pan(-0.5)),
        tool("⤢", words("The whole step"), whole),
      ),
    ),
  );
  element.append(detail);
  render();
  choose(null, false);
}

function rowsOf(columns) {
  return columns.stage.map((stage, index) => ({
    stage,
    lane: columns.lane[index],
    name: columns.name[index],
    kind: columns.kind[index],
    start: columns.start_seconds[index],
    end: columns.end_seconds[index],
    batch: columns.name[index].match(/\d+/)?.[0] ?? "",
  }));
}

// Lanes from top to bottom; those in which nothing happens take no room.
function lanesOf(spans) {
  const found = d3
    .nest()
    .key((span) => span.stage)
    .sortKeys((a, b) => a - b)
    .key((span) => span.lane)
    .sortKeys((a, b) => a - b)
    .entries(spans);
  let y = 2;
  return found.flatMap(({ key: stage, values }) => {
    const lanes = values.map(({ key: lane, values: inside }) => {
      const placed = {
        stage: Number(stage),
        lane: Number(lane),
        y,
        high: HIGH[lane],
        spans: inside.sort((a, b) => a.start - b.start),
      };
      y += HIGH[lane] + 2;
      return placed;
    });
    y += 6;
    return lanes;
  });
}

// The span under the pointer, or the nearest within a few pixels.
function hit(lanes, at, top, near) {
  const lane = lanes.find((one) => top >= one.y - 2 && top <= one.y + one.high + 2);
  if (!lane) return null;
  const index = d3.bisector((span) => span.start).right(lane.spans, at);
  return (
    [lane.spans[index - 1], lane.spans[index]].find(
      (span) => span && at >= span.start - near && at <= span.end + near,
    ) ?? null
  );
}

function beside(lanes, chosen, step) {
  const lane = lanes.find(({ spans }) => spans.includes(chosen)) ?? lanes[0];
  const at = chosen ? lane.spans.indexOf(chosen) + step : 0;
  return lane.spans[Math.min(Math.max(at, 0), lane.spans.length - 1)];
}

function across(lanes, chosen, step) {
  if (!chosen) return lanes[0].spans[0];
  const at = lanes.findIndex(({ spans }) => spans.includes(chosen)) + step;
  const lane = lanes[Math.min(Math.max(at, 0), lanes.length - 1)];
  return lane.spans[Math.max(d3.bisector((span) => span.start).right(lane.spans, chosen.start) - 1, 0)];
}

// What the chosen task is, how long it takes, and one layer of it op by op.
function about(span, answer, words) {
  const seconds = span.end - span.start;
  const title = make(
    "p",
    { class: "detail-title" },
    make(
      "strong",
      {},
      span.batch && span.lane === 0 && span.kind !== "update"
        ? words("{kind} of micro-batch {batch} on stage {stage}", {
            kind: words(span.kind),
            batch: span.batch,
            stage: span.stage,
          })
        : words("{kind} on stage {stage}", { kind: words(span.kind), stage: span.stage }),
    ),
    make("span", {}, show(seconds, "seconds")),
    make(
      "span",
      { class: "faint", "data-name": "span.start_seconds", "data-value": span.start },
      words("from {start} to {end}", { start: show(span.start, "seconds"), end: show(span.end, "seconds") }),
    ),
  );
  return [title, why(span.kind, answer, words)];
}
