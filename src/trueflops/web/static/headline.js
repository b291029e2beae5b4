// The few figures that a question is asked for, each with its interval drawn.
// In: a command and its answer. Out: a list of {name, label, value, low, high, dimension, …}.

import { make } from "./dom.js";
import { show, showBetween } from "./units.js";
import { mark, words } from "./words.js";

const between = (name, label, found, dimension, more = {}) =>
  found && Number.isFinite(found.value) ? { name, label, ...found, dimension, ...more } : null;
const exact = (name, label, value, dimension, more = {}) =>
  Number.isFinite(value) ? { name, label, value, dimension, ...more } : null;
const JOULES = 3.6e6; // of a kWh
const scaled = (found, factor) =>
  found && {
    value: found.value * factor,
    low: found.low * factor,
    high: found.high * factor,
    given: found.value,
  };

const FIGURES = {
  train: (answer) => [
    between("step_seconds", mark("Step"), answer.step_seconds, "seconds"),
    between("mfu", mark("MFU"), answer.mfu, "share", { most: 1 }),
    between("tokens_per_second", mark("Tokens/s"), answer.tokens_per_second, "count"),
    memory(answer),
    between(
      "training_seconds",
      mark("Whole run"),
      answer.whole_bill?.training_seconds ?? answer.training_seconds,
      "seconds",
    ),
    between("cost_usd", mark("Cost"), answer.whole_bill?.cost_usd ?? answer.cost_usd, "usd"),
    between(
      "energy_kwh",
      mark("Energy"),
      scaled(answer.whole_bill?.energy_kwh ?? answer.energy_kwh, JOULES),
      "joules",
    ),
  ],
  infer: (answer) => [
    between("ttft_seconds", mark("Time to first token"), answer.ttft_seconds, "seconds"),
    between("tpot_seconds", mark("Time per token"), answer.tpot_seconds, "seconds"),
    between("tokens_per_second", mark("Tokens/s written"), answer.tokens_per_second, "count"),
    between("usd_per_million_tokens", mark("Per million tokens"), answer.usd_per_million_tokens, "usd"),
    memory(answer),
    between("maximum_concurrency", mark("Room for requests"), answer.maximum_concurrency, "count"),
    between("joules_per_token", mark("Energy per token"), answer.joules_per_token, "joules"),
  ],
  explain: (answer) => [
    between("seconds", mark("Time"), answer.seconds, "seconds"),
    between("flop_per_second", mark("Delivered"), answer.flop_per_second, "flop_per_second", {
      limit: answer.peak_flop_per_second,
    }),
    exact("share_of_peak", mark("Share of the peak"), answer.share_of_peak, "share", { most: 1 }),
    exact("intensity_flop_per_byte", mark("FLOP per byte"), answer.intensity_flop_per_byte, "count", {
      ridge: answer.ridge_flop_per_byte,
    }),
  ],
  collective: (answer) => {
    const used = answer.algorithms?.find((one) => one.name === answer.library_algorithm);
    return [
      between("seconds", mark("Time"), answer.seconds, "seconds"),
      exact("bus_bytes_per_second", mark("Bus bandwidth"), used?.bus_bytes_per_second, "bytes_per_second", {
        limit: answer.cluster?.tiers?.[0]?.bytes_per_second,
      }),
      exact("steps", mark("Steps"), used?.steps, "whole"),
      exact("busiest_sends_bytes", mark("The busiest sends"), used?.busiest_sends_bytes, "bytes"),
    ];
  },
  stragglers: (answer) => {
    const mode = (name) => answer.modes?.find((one) => one.name === name) ?? {};
    const ideal = answer.ideal_gradients_per_second;
    const rate = (name, label, value) => exact(name, label, value, "count", { limit: ideal });
    return [
      rate("synchronous", mark("Gradients/s, all in step"), mode("synchronous").gradients_per_second),
      exact("synchronous_lost", mark("Lost in step"), mode("synchronous").lost, "share", { most: 1 }),
      rate("asynchronous", mark("Gradients/s, asynchronous"), mode("asynchronous").gradients_per_second),
      exact("mean_staleness", mark("Stale by, asynchronous"), mode("asynchronous").mean_staleness, "count"),
    ];
  },
  compare: () => [],
};

function memory(answer) {
  const { bytes: value, low, high } = answer.memory ?? {};
  return between("memory", mark("Memory"), { value, low, high }, "memory", {
    limit: answer.capacity_bytes,
    over: value > answer.capacity_bytes,
  });
}

/** The figures of an answer that has them. */
export function figures(command, answer) {
  return (FIGURES[command] ?? (() => []))(answer).filter((figure) => figure !== null);
}

/** One sentence with all of them, for screen readers. */
export function spoken(command, answer) {
  return figures(command, answer)
    .slice(0, 4)
    .map((figure) => `${words(figure.label)} ${show(figure.value, figure.dimension)}`)
    .join(", ");
}

/** A card for each. `drawSpreads(draw)` draws their intervals, once the cards have a width. */
export function cards(command, answer) {
  const made = figures(command, answer).map((figure) => ({ figure, ...card(figure) }));
  return {
    element: make(
      "dl",
      { class: "cards" },
      made.map(({ element }) => element),
    ),
    drawSpreads: (draw) => {
      for (const { figure, slot } of made) if (isDrawn(figure)) draw(slot, figure);
    },
  };
}

const isKnown = (figure) => figure.low !== undefined && figure.low !== figure.high;
const isDrawn = (figure) => isKnown(figure) || figure.limit !== undefined || figure.most !== undefined;

function card(figure) {
  const value = make(
    "span",
    { class: "card-value", "data-name": figure.name, "data-value": String(figure.given ?? figure.value) },
    ...split(show(figure.value, figure.dimension)),
  );
  const limit = limitOf(figure);
  const slot = make("div", { class: "card-spread" });
  const element = make(
    "div",
    { class: figure.over ? "card card-over" : "card" },
    make("dt", {}, make("span", {}, words(figure.label)), limit),
    make(
      "dd",
      {},
      value,
      slot,
      make(
        "span",
        { class: "card-between" },
        isKnown(figure) ? showBetween(figure.low, figure.value, figure.high, figure.dimension) : "\u00a0",
      ),
    ),
  );
  return { element, slot };
}

// What the figure is held against: a capacity, a peak, the ridge of a roofline.
function limitOf(figure) {
  const text =
    figure.limit !== undefined
      ? words("of {limit}", { limit: show(figure.limit, figure.dimension) })
      : figure.ridge !== undefined
        ? words("ridge {limit}", { limit: show(figure.ridge, figure.dimension) })
        : null;
  return text === null ? null : make("span", { class: "card-limit" }, text);
}

// The unit is set smaller than the number.
function split(shown) {
  const [, before, number, unit] = /^(\$?)([^ ]+)(.*)$/.exec(shown);
  return [before, number, make("small", {}, unit)].filter((piece) => piece !== "");
}
