// What each view asks before anybody has touched it: questions with an interesting answer.

import { mark } from "./words.js";

export const DEFAULTS = {
  train: { model: "Llama-3.1-70B", on: "64xH100", tp: "8", pp: "4", zero: "1" },
  infer: { model: "Llama-3.1-70B", on: "8xH100", tp: "8", rate: "8" },
  compare: { chips: "H100 H200 B200 MI300X MI355X TPU-v6e RTX-4090 Ascend-910B" },
  explain: { what: "matmul", shape: "4096x11008x4096", on: "H100" },
  collective: { kind: "all_reduce", bytes: "1GB", on: "8xH100", steps: "ring" },
  stragglers: { on: "8xH100", step: "500ms", bytes: "1GB", slow_rank: "1.5", jitter: "10%" },
  drop: {},
};

/** The command that a view asks; `drop` asks none. */
export const VIEWS = [
  ["train", mark("Train")],
  ["infer", mark("Serve")],
  ["compare", mark("Chips")],
  ["explain", mark("Product")],
  ["collective", mark("Collective")],
  ["stragglers", mark("Stragglers")],
  ["drop", mark("Drop")],
];
