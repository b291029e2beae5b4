"""trueflops: a performance compiler for AI accelerators.

    >>> import trueflops as tf
    >>> answer = tf.train("Llama-3.1-70B", on="64xH100", tp=8, pp=4, zero=1)
    >>> bool(answer.bill.mfu.value > 0.3), answer.json["fits"]  # as the command's --json
    (True, True)
    >>> model, cluster = tf.read_model("Llama-3.1-70B"), tf.cluster("64xH100")
    >>> asked = tf.Training(seq=8192, global_batch=512, tokens=1e12)
    >>> trainer = tf.Trainer(model, asked, cluster, tf.profile_of(cluster.accelerator))
    >>> step = trainer.predict_one(tf.Plan(tp=8, sp=True, dp_shard=8, zero=1, recompute="full"))
    >>> mfu = tf.training_bill(step).mfu
    >>> bool(0.2 < mfu.low < mfu.value < mfu.high < 0.7)
    True

`dir(trueflops)` lists the public names; help() of each has an example.

Rooms, in the order in which data passes through them: language, errors, units, dtypes, files,
sizes, tables, catalog, model, workload, plan, graph, records, capture, profile, clock, runtime,
interop, predict, serve, search, calibrate, verify, sweep, run, report, measure, web, cli, ask,
pytest_plugin. A room imports only rooms above it.
"""

from importlib import import_module
from typing import Any

__version__ = "0.5.0"

# Public names and the rooms they live in; loaded when first used, so that importing is instant.
_PUBLIC = {
    "train": "ask",
    "infer": "ask",
    "compare": "ask",
    "read_model": "model",
    "Model": "model",
    "accelerator": "catalog",
    "cluster": "catalog",
    "Cluster": "catalog",
    "price": "catalog",
    "Plan": "plan",
    "check_plan": "plan",
    "Training": "workload",
    "Serving": "workload",
    "Profile": "profile",
    "profile_of": "profile",
    "Clock": "clock",
    "Trainer": "predict",
    "Server": "predict",
    "Pool": "predict",
    "Pools": "predict",
    "training_bill": "predict",
    "whole_bill": "predict",
    "search_plans": "search",
    "legal_plans": "search",
    "search_serving": "search",
    "TrueflopsError": "errors",
}
__all__ = sorted(_PUBLIC)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"trueflops.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'trueflops' has no attribute {name!r}")
