// Which questions a view asks, as data. In: nothing. Out: groups of fields by view.
// A field is {name, label, kind, …} of fields.js; `name` is the flag, as in the address.

import { mark } from "./words.js";

const powers = (from, to) => {
  const found = [];
  for (let power = from; power <= to; power += 1) found.push(String(2 ** power));
  return found;
};
const same = (values) => values.map((value) => [value, value]);

export const DTYPES = [
  "bf16",
  "fp16",
  "tf32",
  "fp32",
  "fp8",
  "fp8_block",
  "int8",
  "w8a16",
  "int4",
  "mxfp4",
  "nvfp4",
];
const RECOMPUTE = [
  ["", "none"],
  ["selective", "selective"],
  ["products", "products"],
  ["full", "full"],
];
const SCHEDULES = [["", "1f1b"], ...same(["gpipe", "zb-h1", "zb-h2", "zb-v", "dualpipe"])];
const COLLECTIVES = same(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]);
const STEPS = ["10ms", "20ms", "50ms", "100ms", "200ms", "500ms", "1s", "2s", "5s", "10s"];
const SIZES = ["1kB", "10kB", "100kB", "1MB", "10MB", "100MB", "1GB", "10GB"];
/** How an algorithm of collectives is called, by its name on the command line. */
export const ALGORITHMS = {
  ring: mark("ring"),
  tree: mark("two trees"),
  hierarchical: mark("hierarchical"),
  "halving-doubling": mark("halving-doubling"),
  "in-switch": mark("in-switch"),
  "server-everywhere": mark("all serve"),
  "server-rank0": mark("rank 0 serves"),
  "server-host": mark("host serves"),
  direct: mark("direct"),
  "binomial-tree": mark("binomial tree"),
};
// Those whose steps can be drawn: the others are no steps between ranks.
const DRAWN = Object.entries(ALGORITHMS).filter(([name]) => !["in-switch", "server-host"].includes(name));

/** Degrees that, where none is given, leave the plan to a search (as the command line does). */
export const PLAN_KEYS = ["tp", "pp", "cp", "dp", "ep", "etp", "dcp", "dp_replicate", "dp_shard"];

const model = { name: "model", label: mark("Model"), kind: "model" };
const cluster = { name: "on", label: mark("Cluster"), kind: "cluster" };
/** Some ranks of the cluster, at most 2 ** most; where none is given, all. */
const ranks = (most) => ({
  name: "ranks",
  label: mark("Ranks"),
  kind: "slider",
  stops: ["", ...powers(1, most)],
  auto: mark("all"),
});

export const FORMS = {
  train: [
    {
      title: mark("What, on what"),
      fields: [
        model,
        cluster,
        { name: "framework", label: mark("Framework"), kind: "listed", from: "framework" },
      ],
    },
    {
      title: mark("Workload"),
      fields: [
        { name: "seq", label: mark("Sequence"), kind: "slider", stops: ["", ...powers(9, 20)] },
        { name: "global_batch", label: mark("Global batch"), kind: "slider", stops: ["", ...powers(0, 14)] },
        { name: "tokens", label: mark("Tokens"), kind: "text", placeholder: mark("20 a parameter") },
      ],
    },
    {
      title: mark("Plan"),
      plan: true,
      fields: [
        { name: "tp", label: mark("tp · tensor"), kind: "slider", stops: powers(0, 6), unless: "1" },
        { name: "pp", label: mark("pp · pipeline"), kind: "slider", stops: powers(0, 6), unless: "1" },
        {
          name: "vpp",
          label: mark("vpp · interleaved"),
          kind: "slider",
          stops: ["1", "2", "4", "5", "8", "10", "20"],
          unless: "1",
        },
        { name: "cp", label: mark("cp · context"), kind: "slider", stops: powers(0, 6), unless: "1" },
        { name: "ep", label: mark("ep · expert"), kind: "slider", stops: powers(0, 8), unless: "1" },
        {
          name: "dp",
          label: mark("dp · data"),
          kind: "slider",
          stops: ["", ...powers(0, 12)],
          auto: mark("the rest"),
        },
        { name: "micro_batch", label: mark("Micro-batch"), kind: "slider", stops: powers(0, 6), unless: "1" },
        {
          name: "zero",
          label: mark("ZeRO"),
          kind: "segmented",
          choices: same(["0", "1", "2", "3"]),
          unless: "0",
        },
        { name: "recompute", label: mark("Recompute"), kind: "select", choices: RECOMPUTE },
        { name: "schedule", label: mark("Schedule"), kind: "select", choices: SCHEDULES },
      ],
    },
  ],
  infer: [
    {
      title: mark("What, on what"),
      fields: [
        model,
        cluster,
        { name: "framework", label: mark("Engine"), kind: "listed", from: "engine" },
        {
          name: "weights",
          label: mark("Weights"),
          kind: "select",
          choices: [
            ["", mark("as released")],
            ...same(["bf16", "fp8", "int8", "w8a16", "int4", "mxfp4", "nvfp4"]),
          ],
        },
      ],
    },
    {
      title: mark("Workload"),
      fields: [
        {
          name: "input",
          label: mark("Input tokens"),
          kind: "slider",
          stops: ["", ...powers(5, 18)],
          auto: "1024",
        },
        {
          name: "output",
          label: mark("Output tokens"),
          kind: "slider",
          stops: ["", ...powers(4, 14)],
          auto: "256",
        },
        {
          name: "concurrency",
          label: mark("In flight"),
          kind: "slider",
          stops: ["", ...powers(0, 12)],
          auto: "≤ 64",
        },
        {
          name: "rate",
          label: mark("Requests/s"),
          kind: "slider",
          auto: mark("none"),
          stops: ["", "0.25", "0.5", "1", "2", "4", "8", "12", "16", "24", "32", "64", "128"],
        },
        { name: "ttft", label: mark("TTFT at most"), kind: "text", placeholder: mark("as 500ms") },
        { name: "tpot", label: mark("TPOT at most"), kind: "text", placeholder: mark("as 50ms") },
      ],
    },
    {
      title: mark("Plan"),
      plan: true,
      fields: [
        { name: "tp", label: mark("tp · tensor"), kind: "slider", stops: powers(0, 6), unless: "1" },
        { name: "pp", label: mark("pp · pipeline"), kind: "slider", stops: powers(0, 4), unless: "1" },
        { name: "ep", label: mark("ep · expert"), kind: "slider", stops: powers(0, 8), unless: "1" },
        { name: "etp", label: mark("etp · each expert"), kind: "slider", stops: powers(0, 8), unless: "1" },
        { name: "dcp", label: mark("dcp · keys"), kind: "slider", stops: powers(0, 6), unless: "1" },
      ],
    },
  ],
  compare: [
    {
      title: mark("Which chips"),
      fields: [
        { name: "chips", label: mark("Chips"), kind: "chips", redraws: true },
        { name: "vendor", label: mark("Vendor"), kind: "text", placeholder: mark("all") },
        { name: "since", label: mark("Since"), kind: "text", placeholder: mark("any year") },
        { name: "all", label: mark("Announced chips too"), kind: "toggle" },
      ],
    },
    {
      title: mark("For which model"),
      fields: [
        { name: "model", label: mark("Model"), kind: "model", placeholder: mark("none") },
        {
          name: "count",
          label: mark("Chips of each"),
          kind: "slider",
          stops: ["", ...powers(0, 10)],
          auto: mark("fewest"),
        },
        { name: "seq", label: mark("Sequence"), kind: "slider", stops: ["", ...powers(9, 17)], auto: "4096" },
      ],
    },
  ],
  explain: [
    {
      title: mark("Which product"),
      fields: [
        {
          name: "what",
          label: mark("Kernel"),
          kind: "segmented",
          redraws: true,
          choices: [
            ["matmul", mark("Matmul")],
            ["attention", mark("Attention")],
          ],
        },
        { name: "shape", label: mark("Shape"), kind: "shape" },
        { name: "on", label: mark("Chip"), kind: "chip" },
        {
          name: "dtype",
          label: mark("Format"),
          kind: "select",
          choices: [["", mark("as the chip has it")], ...same(DTYPES)],
        },
      ],
    },
  ],
  collective: [
    {
      title: mark("Which collective"),
      fields: [
        { name: "kind", label: mark("Collective"), kind: "select", choices: COLLECTIVES },
        { name: "bytes", label: mark("Bytes"), kind: "slider", stops: SIZES },
        cluster,
        ranks(12),
        { name: "steps", label: mark("Draw"), kind: "select", choices: DRAWN },
      ],
    },
  ],
  stragglers: [
    {
      title: mark("Workers"),
      fields: [
        cluster,
        ranks(8),
        { name: "step", label: mark("A healthy step"), kind: "slider", stops: STEPS },
        {
          name: "bytes",
          label: mark("Gradients"),
          kind: "slider",
          stops: ["", ...SIZES],
          auto: mark("none"),
        },
      ],
    },
    {
      title: mark("What is slow"),
      fields: [
        {
          name: "slow_rank",
          label: mark("Rank 0 takes, times"),
          kind: "slider",
          stops: ["1", "1.1", "1.25", "1.5", "2", "3", "5", "10"],
          unless: "1",
        },
        {
          name: "slow_link",
          label: mark("Its link has, times"),
          kind: "slider",
          stops: ["0.01", "0.1", "0.25", "0.5", "0.75", "1"],
          unless: "1",
        },
        {
          name: "jitter",
          label: mark("Every step varies by"),
          kind: "slider",
          stops: ["0%", "2%", "5%", "10%", "20%", "30%", "50%"],
          unless: "0%",
        },
      ],
    },
    {
      title: mark("How gradients are used"),
      fields: [
        {
          name: "staleness",
          label: mark("Bounded: steps ahead"),
          kind: "slider",
          stops: ["0", "1", "2", "3", "5", "8", "16", "32"],
          unless: "3",
        },
        {
          name: "drop",
          label: mark("Dropped of a step"),
          kind: "slider",
          stops: ["0", "1", "2", "3", "4"],
          unless: "1",
        },
      ],
    },
  ],
};

/** What the axes of a kernel's shape are called. */
export const AXES = {
  matmul: [mark("M, rows"), mark("N, columns"), mark("K, depth")],
  attention: [mark("Batch"), mark("Heads"), mark("KV heads"), mark("Length"), mark("Head dim")],
};
export const AXIS_STOPS = {
  matmul: [powers(0, 16), powers(5, 16), powers(5, 16)],
  attention: [powers(0, 10), powers(0, 8), powers(0, 8), powers(5, 18), powers(4, 9)],
};
export const FIRST_SHAPE = { matmul: "4096x11008x4096", attention: "1x32x8x4096x128" };
