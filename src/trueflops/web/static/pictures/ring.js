// A collective step by step: ranks on a circle, the messages of one step, what every rank holds.
// In: an answer's "schedule" (collective … --steps). Out: svg with buttons: play, pause, step, back.

/* global d3 */
import { fill, make } from "../dom.js";
import { show } from "../units.js";
import { area, hideTip, label, named, tool } from "./drawn.js";

const STEP_MS = 1100;
const MOST_CELLS = 32; // ranks or chunks, beyond which what is held is not drawn
const MOST_NAMED = 64;
const playing = new WeakMap(); // element -> what stops the play that an earlier draw began

export function draw(element, answer, { words }) {
  playing.get(element)?.();
  const { schedule, ranks } = answer;
  const steps = schedule.phases.flatMap((phase) =>
    phase.steps.map((messages, index) => ({ phase: phase.name, index, of: phase.steps.length, messages })),
  );
  const held = heldAfter(answer, steps);
  const said = words("{algorithm} among {ranks} ranks: {steps} steps, {chunks} chunks", {
    algorithm: schedule.algorithm,
    ranks,
    steps: steps.length,
    chunks: schedule.chunks,
  });
  const wide = Math.max(element.clientWidth || 560, 260);
  const size = Math.min(wide, 400);
  const beside = held && wide > 700;
  const { svg, width } = area(element, beside || !held ? size : size + gridSize(ranks, schedule.chunks) + 40, said);
  named(svg.append("g"), "ring.steps", steps.length);
  named(svg.append("g"), "ring.chunks", schedule.chunks);
  const left = beside ? Math.max((width - size - gridWidth(schedule.chunks) - 70) / 2, 0) : (width - size) / 2;
  const middle = [left + size / 2, size / 2];
  const radius = size / 2 - 34;
  const places = d3.range(ranks).map((rank) => {
    const angle = (2 * Math.PI * rank) / ranks - Math.PI / 2;
    return [middle[0] + radius * Math.cos(angle), middle[1] + radius * Math.sin(angle)];
  });
  svg
    .append("circle")
    .attr("cx", middle[0])
    .attr("cy", middle[1])
    .attr("r", radius)
    .attr("fill", "none")
    .attr("stroke", "var(--grid)")
    .attr("stroke-width", 1.5);
  const arrows = svg.append("g");
  const dot = Math.max(3, Math.min(16, (radius * 2.4) / ranks));
  const nodes = svg
    .append("g")
    .selectAll("g")
    .data(places)
    .enter()
    .append("g")
    .attr("transform", ([x, y]) => `translate(${x},${y})`);
  nodes
    .append("circle")
    .attr("r", dot)
    .attr("fill", "var(--panel)")
    .attr("stroke", "var(--c1)")
    .attr("stroke-width", 1.6);
  if (ranks <= MOST_NAMED && dot > 6)
    nodes
      .append("text")
      .attr("text-anchor", "middle")
      .attr("y", 4)
      .attr("font-weight", 600)
      .attr("font-size", Math.min(12, dot))
      .text((place, rank) => rank);
  const packets = svg.append("g");
  const phaseName = label(svg, middle[0], middle[1] - 6, "", { anchor: "middle", weight: 650, size: 13 });
  const stepName = label(svg, middle[0], middle[1] + 13, "", { anchor: "middle", colour: "var(--soft)" });
  const grid = held
    ? gridOf(
        svg,
        beside
          ? [left + size + 70, Math.max((size - gridSize(ranks, schedule.chunks)) / 2, 40)]
          : [(width - gridWidth(schedule.chunks)) / 2, size + 26],
        answer,
        words,
      )
    : null;

  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  let at = -1; // before the first step
  let timer = null;
  const slider = make("input", {
    type: "range",
    min: "0",
    max: String(steps.length),
    value: "0",
    "aria-label": words("Step"),
    oninput: () => {
      stop();
      go(Number(slider.value) - 1, false);
    },
  });
  const play = tool("▶", words("Play"), () => (timer ? stop() : start()));
  const status = make("span", { class: "faint", "aria-live": "polite" });

  function go(step, moves) {
    at = Math.max(-1, Math.min(step, steps.length - 1));
    slider.value = String(at + 1);
    const now = steps[at];
    phaseName.text(now ? words(now.phase) : words("at first"));
    stepName.text(words("step {step} of {steps}", { step: at + 1, steps: steps.length }));
    arrows.selectAll("*").remove();
    packets.selectAll("*").remove();
    const doing = !now
      ? words("{chunks} chunks on every rank", { chunks: schedule.chunks })
      : now.messages.some((message) => message.adds)
        ? words("{count} messages; each receiver adds", { count: now.messages.length })
        : words("{count} messages; each receiver keeps", { count: now.messages.length });
    fill(status, doing);
    if (now) send(now.messages, moves && !still.matches);
    else grid?.(held[0], new Set());
  }

  function send(messages, moves) {
    const curves = messages.map((message) => ({
      message,
      curve: curveOf(places[message.source], places[message.destination], middle, dot),
    }));
    arrows
      .selectAll("path")
      .data(curves)
      .enter()
      .append("path")
      .attr("d", ({ curve: [from, by, to] }) => `M${from}Q${by} ${to}`)
      .attr("fill", "none")
      .attr("stroke", ({ message }) => (message.adds ? "var(--c2)" : "var(--c4)"))
      .attr("stroke-width", ranks > 40 ? 1 : 2)
      .attr("stroke-opacity", 0.7);
    const balls = packets.selectAll("g").data(curves).enter().append("g");
    balls
      .append("circle")
      .attr("r", Math.max(2.5, dot * 0.62))
      .attr("fill", ({ message }) => (message.adds ? "var(--c2)" : "var(--c4)"));
    if (dot > 9)
      balls
        .append("text")
        .attr("text-anchor", "middle")
        .attr("y", 3.5)
        .attr("font-size", 10)
        .attr("font-weight", 700)
        .attr("fill", "var(--panel)")
        .text(({ message }) => chunkName(message, schedule.chunks, ranks));
    const put =
      (share) =>
      ({ curve }) => {
        const [x, y] = pointOf(curve, share);
        return `translate(${x},${y})`;
      };
    const arrived = () =>
      grid?.(
        held[at + 1],
        new Set(messages.flatMap((message) => message.chunks.map((chunk) => `${message.destination}.${chunk}`))),
      );
    if (moves) {
      grid?.(held[at], new Set());
      balls
        .transition()
        .duration(STEP_MS * 0.75)
        .ease(d3.easeCubicInOut)
        .attrTween("transform", (one) => (share) => put(share)(one))
        .filter((one, index) => index === 0)
        .on("end", arrived);
    } else {
      balls.attr("transform", put(0.62));
      arrived();
    }
  }

  function start() {
    if (at >= steps.length - 1) go(-1, false);
    play.textContent = "||";
    play.setAttribute("aria-label", words("Pause"));
    const next = () => {
      if (!element.isConnected || at >= steps.length - 1) {
        stop();
        return;
      }
      go(at + 1, true);
    };
    next();
    timer = setInterval(next, STEP_MS);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶";
    play.setAttribute("aria-label", words("Play"));
  }

  playing.set(element, stop);
  const by = (step) => () => {
    stop();
    hideTip();
    go(at + step, step > 0);
  };
  element.prepend(
    make(
      "div",
      { class: "picture-tools" },
      make(
        "span",
        { class: "tools" },
        tool("|◂", words("To the start"), () => {
          stop();
          go(-1, false);
        }),
        tool("◂", words("Step back"), by(-1)),
        play,
        tool("▸", words("Step"), by(1)),
      ),
      slider,
      status,
    ),
  );
  if (answer.seconds) {
    element.append(
      make(
        "p",
        { class: "hint" },
        words("All of it: {seconds}; chunks of {size}", {
          seconds: show(answer.seconds.value, "seconds"),
          size: show(answer.payload_bytes / schedule.chunks, "bytes"),
        }),
      ),
    );
  }
  go(0, false);
}

// From one rank to another: along the circle to a neighbour, through the inside to any other.
function curveOf([x0, y0], [x1, y1], [mx, my], dot) {
  const [dx, dy] = [x1 - x0, y1 - y0];
  const long = Math.hypot(dx, dy) || 1;
  const [ox, oy] = [(x0 + x1) / 2 - mx, (y0 + y1) / 2 - my]; // outwards; a chord through the middle is straight
  const far = Math.hypot(ox, oy) || 1;
  const bulge = (0.26 * long * far) / (far + long / 2);
  const [cx, cy] = [(x0 + x1) / 2 + (ox / far) * bulge, (y0 + y1) / 2 + (oy / far) * bulge];
  const cutOff = Math.min((dot + 2) / long, 0.4);
  return [
    [x0 + dx * cutOff, y0 + dy * cutOff],
    [cx, cy],
    [x1 - dx * cutOff, y1 - dy * cutOff],
  ];
}

/** Where a quadratic Bézier curve is after a share of it. */
function pointOf([from, by, to], share) {
  const rest = 1 - share;
  return [0, 1].map((axis) => rest * rest * from[axis] + 2 * rest * share * by[axis] + share * share * to[axis]);
}

function chunkName(message, chunks, ranks) {
  if (message.chunks.length > 1) return message.chunks.length === chunks ? "∗" : String(message.chunks.length);
  const chunk = message.chunks[0];
  if (chunks > ranks && chunks === ranks * ranks) return String(chunk % ranks);
  return chunks <= 26 ? String.fromCharCode(97 + chunk) : String(chunk);
}

// Of how many ranks each [rank][chunk] holds the sum before and after every step, as
// predict/collective/schedule.py counts it; nothing where there are too many to draw.
function heldAfter({ collective, ranks, schedule: { chunks } }, steps) {
  if (ranks > MOST_CELLS || chunks > MOST_CELLS) return null;
  const has = (rank, chunk) =>
    collective === "all_gather" ? rank === chunk : collective === "broadcast" ? rank === 0 : true;
  let now = d3.range(ranks).map((rank) => d3.range(chunks).map((chunk) => (has(rank, chunk) ? 1 : 0)));
  const all = [now];
  for (const { messages } of steps) {
    const next = now.map((row) => [...row]);
    for (const { source, destination, chunks: sent, adds } of messages) {
      for (const chunk of sent)
        next[destination][chunk] = (adds ? next[destination][chunk] : 0) + now[source][chunk];
    }
    now = next;
    all.push(now);
  }
  return all;
}

const CELL = 26;
const gridWidth = (chunks) => Math.min(CELL, 340 / chunks) * chunks + 34;
const gridSize = (ranks, chunks) => Math.min(CELL, 340 / Math.max(chunks, ranks)) * ranks;

// Rows are ranks, columns chunks; a cell fills as it gathers the sum of all.
function gridOf(svg, [left, top], { ranks, collective, schedule: { chunks } }, words) {
  const cell = Math.min(CELL, 340 / Math.max(chunks, ranks));
  const sums = collective === "all_reduce" || collective === "reduce_scatter";
  const group = svg.append("g").attr("transform", `translate(${left},${top})`);
  label(
    group,
    26,
    -18,
    sums ? words("each rank, each chunk: the sum of how many") : words("what each rank holds"),
    { size: 11, colour: "var(--soft)" },
  );
  d3.range(chunks).forEach((chunk) =>
    label(group, 26 + (chunk + 0.5) * cell, -4, chunks <= 26 ? String.fromCharCode(97 + chunk) : String(chunk), {
      anchor: "middle",
      size: Math.min(10.5, cell * 0.6),
      colour: "var(--faint)",
    }),
  );
  d3.range(ranks).forEach((rank) =>
    label(group, 18, (rank + 0.5) * cell + 4, String(rank), {
      anchor: "end",
      size: Math.min(10.5, cell * 0.6),
      colour: "var(--faint)",
    }),
  );
  const cells = d3.range(ranks * chunks).map((index) => {
    const [rank, chunk] = [Math.floor(index / chunks), index % chunks];
    const one = group.append("g").attr("transform", `translate(${26 + chunk * cell},${rank * cell})`);
    return {
      rank,
      chunk,
      rect: one
        .append("rect")
        .attr("width", cell - 1.5)
        .attr("height", cell - 1.5)
        .attr("rx", 2),
      text: one
        .append("text")
        .attr("x", cell / 2 - 0.75)
        .attr("y", cell / 2 + 3)
        .attr("text-anchor", "middle")
        .attr("font-size", cell * 0.5),
    };
  });
  return (held, fresh) => {
    for (const { rank, chunk, rect, text } of cells) {
      const count = held[rank][chunk];
      const done = sums ? count === ranks : count > 0;
      rect
        .attr("fill", count ? (done ? "var(--c4)" : "var(--c2)") : "var(--grid)")
        .attr("fill-opacity", count ? (done ? 0.85 : 0.15 + 0.6 * (count / ranks)) : 1)
        .attr("stroke", fresh.has(`${rank}.${chunk}`) ? "var(--ink)" : "none")
        .attr("stroke-width", 1.5);
      text.text(count && sums && cell > 13 ? (done ? "Σ" : count) : "");
    }
  };
}
