// A plan that an answer or a picture names, as flags of a question.
// In: "--tp 8 --sp --pp 4 --mb 1", or a plan's fields. Out: {tp: "8", sp: "true", pp: "4", …}.

const LONG = { mb: "micro_batch" };

// Which kernels run is the framework's; a plan's flags say it, a question need not.
const FRAMEWORKS_OWN = [
  "implementation",
  "fused",
  "loss",
  "overlap",
  "mixed",
  "gradient_dtype",
  "parameter_dtype",
  "flash",
];

/** The flags of an answer's plan_flags that say how the model is cut. */
export function fromFlags(text) {
  const found = {};
  const pieces = (text ?? "").split(/\s+/).filter(Boolean);
  pieces.forEach((piece, index) => {
    if (!piece.startsWith("--")) return;
    const [option, inline] = piece.slice(2).split("=");
    const next = pieces[index + 1];
    const value = inline ?? (next && !next.startsWith("--") ? next : "true");
    const off = value === "true" && option.startsWith("no-");
    const name = (off ? option.slice(3) : option).replaceAll("-", "_");
    if (!FRAMEWORKS_OWN.includes(name)) found[LONG[name] ?? name] = off ? "false" : value;
  });
  return found;
}

// What a plan's degrees are where nobody gives them.
const USUAL = { cp: 1, pp: 1, vpp: 1, ep: 1, micro_batch: 1, zero: 0, recompute: "none", schedule: "1f1b" };

/** The degrees of a plan's own fields, as `best` and `front` list them; for plans without flags. */
export function fromFields(plan) {
  const names = ["tp", "cp", "pp", "vpp", "ep", "zero", "micro_batch", "recompute", "schedule"];
  const given = names.filter((name) => name in plan && (name === "tp" || plan[name] !== USUAL[name]));
  return Object.fromEntries(given.map((name) => [name, String(plan[name])]));
}

/** A plan in a line, as the command line writes it: "tp 8 · pp 4 · zero 1". */
export function inWords(plan) {
  const dp = (plan.dp_replicate ?? 1) * (plan.dp_shard ?? 1);
  const parts = [
    ["tp", plan.tp],
    ["cp", plan.cp],
    ["pp", plan.pp],
    ["vpp", plan.vpp],
    ["ep", plan.ep],
    ["etp", plan.ep * plan.etp > plan.tp ? plan.etp : 1], // else what ep leaves of tp
    ["dcp", plan.dcp],
    ["dp", dp],
    ["mb", plan.micro_batch],
  ]
    .filter(([, degree]) => degree > 1)
    .map(([name, degree]) => `${name} ${degree}`);
  if (plan.zero) parts.push(`zero ${plan.zero}`);
  if (plan.recompute && plan.recompute !== "none") parts.push(`recompute ${plan.recompute}`);
  return parts.join(" · ") || "tp 1";
}
