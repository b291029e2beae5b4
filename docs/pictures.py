"""The pictures of docs/concepts: one function each, drawn by the product's own functions.

`python docs/generate.py` draws them all. SVG with text as text: a few kilobytes each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import trueflops as tf
from trueflops import units
from trueflops.cli.explain import build_product
from trueflops.graph.kinds import CollectiveKind
from trueflops.predict.collective import compare_collective
from trueflops.predict.explain import explain_matmul
from trueflops.predict.training.simulated import simulate_pipeline
from trueflops.report.plots import BAR, FADED, GOOD, INK, LOSS, load_pyplot, open_frame

FOLDER = Path(__file__).parent / "concepts"
WIDE = (7.6, 3.4)  # inches
PARTS = {"F": BAR, "B": GOOD, "W": LOSS}


def clock_of(text: str) -> tf.Clock:
    """The clock of a cluster."""
    where = tf.cluster(text)
    return tf.Clock(where, tf.profile_of(where.accelerator))


def roofline(axes: Any) -> None:
    """The roofs of an H100, and products of more and more rows under them."""
    clock = clock_of("H100")
    kernels = [explain_matmul(clock, build_product(2**i, 8192, 8192, "bf16")) for i in range(14)]
    last = kernels[-1]
    for peak, bandwidth, color, style, name in (
        (last.peak, last.bandwidth, FADED, "--", "datasheet"),
        (last.delivered_peak, last.delivered_bandwidth, BAR, "-", "delivered"),
    ):
        x = [0.5, peak / bandwidth, 8192]
        y = [min(peak, bandwidth * at) / units.TERA for at in x]
        axes.plot(x, y, style, color=color, label=name)
    axes.plot(
        [k.intensity for k in kernels],
        [k.flop_per_second.value / units.TERA for k in kernels],
        "o", color=GOOD, markersize=4, label="m×8192×8192, m = 1 … 8192",
    )  # fmt: skip
    axes.loglog()
    axes.set(xlabel="flop/byte", ylabel="TFLOP/s")
    axes.legend(frameon=False)


def waves(axes: Any) -> None:
    """The rate of a product as its rows fill tiles and waves."""
    clock = clock_of("A100")
    rows = range(128, 4097, 32)
    made = [explain_matmul(clock, build_product(m, 4096, 4096, "bf16")) for m in rows]
    axes.plot(rows, [each.flop_per_second.value / units.TERA for each in made], color=BAR)
    axes.axhline(made[0].peak / units.TERA, color=FADED, linestyle="--")
    axes.set(xlabel="m of m×4096×4096, A100", ylabel="TFLOP/s", ylim=(0, None))


def ring(axes: Any) -> None:
    """An all-reduce of 1 GB over ranks of one node: the ring, and rank 0 as the server."""
    clock = clock_of("8xA100")
    found = compare_collective(clock, CollectiveKind.ALL_REDUCE, 1.0 * units.GIGA, 8)
    for algorithm, seconds in found.by_count.items():
        if algorithm.value in ("ring", "server-rank0", "server-everywhere"):
            at = [(n, 1e3 * s) for n, s in zip(found.counts, seconds, strict=True) if s]
            axes.plot(*zip(*at, strict=True), "o-", label=algorithm.value)
    axes.set(xlabel="ranks, A100 with NVLink", ylabel="ms for 1 GB", ylim=(0, None))
    axes.legend(frameon=False)


def zero(axes: Any) -> None:
    """Memory of every ZeRO stage, part by part."""
    parts = {"weights": BAR, "gradients": GOOD, "optimizer states": LOSS, "activations": FADED}
    for stage in range(4):
        answer = tf.train("Llama-3.1-8B", on="8xH200", dp=8, zero=stage, seq=4096, global_batch=64)
        assert answer.step is not None
        left = 0.0
        for name, color in parts.items():
            size = float(answer.step.memory[name].value) / units.GIBI
            axes.barh(stage, size, left=left, color=color, label=name if not stage else None)
            left += size
    axes.set(xlabel="GiB, Llama-3.1-8B on 8 × H200", yticks=range(4))
    axes.set_yticklabels([f"zero {stage}" for stage in range(4)])
    axes.invert_yaxis()
    axes.legend(frameon=False)


def pipelines(axes: Any) -> None:
    """Two schedules of four stages and eight micro-batches, event by event."""
    for at, schedule in enumerate(("1f1b", "zb-h1")):
        answer = tf.train(
            "Llama-3.1-8B", on="4xH100", pp=4, zero=0, schedule=schedule, micro_batch=1,
            global_batch=8, seq=4096,
        )  # fmt: skip
        step = answer.step
        assert step is not None
        trainer = tf.Trainer(
            step.model, step.workload, step.cluster, tf.profile_of(step.cluster.accelerator)
        )
        for rank, spans in enumerate(simulate_pipeline(trainer, step.plan).stepped.ranks):
            for span in spans:
                color = PARTS.get(str(span.slot[0].part)[0].upper(), FADED)
                axes.barh(5 * at + rank, span.end - span.start, left=span.start, height=0.8,
                          color=color, edgecolor="white", linewidth=0.5)  # fmt: skip
    axes.set(xlabel="seconds; forward blue, backward green, gradients of weights pale")
    axes.set_yticks([1.5, 6.5], ["1f1b", "zb-h1"])
    axes.invert_yaxis()


def batches(axes: Any) -> None:
    """Tokens a second over requests in flight, plain and drafted."""
    requests = [1, 4, 16, 64, 256]
    for name, method, color in (("plain", None, BAR), ("eagle3 drafts", "eagle3", GOOD)):
        rates = []
        for count in requests:
            answer = tf.infer(
                "Llama-3.1-70B", on="8xH100", tp=8, input=1024, output=256, concurrency=count,
                speculate=method,
            )  # fmt: skip
            assert answer.point is not None
            rates.append(float(answer.point.tokens_per_second.value))
        axes.plot(requests, rates, "o-", color=color, label=name)
    axes.loglog()
    axes.set(xlabel="requests in flight, Llama-3.1-70B on 8 × H100", ylabel="tokens/s")
    axes.legend(frameon=False)


PICTURES: Mapping[str, Callable[[Any], None]] = {
    "roofline.svg": roofline,
    "waves.svg": waves,
    "ring.svg": ring,
    "zero.svg": zero,
    "pipelines.svg": pipelines,
    "batches.svg": batches,
}


def draw_all(folder: Path = FOLDER) -> None:
    """Draw every picture into a folder."""
    pyplot = load_pyplot()
    style = {"svg.fonttype": "none", "svg.hashsalt": "trueflops", "text.color": INK}
    with pyplot.rc_context(style):
        for name, draw in PICTURES.items():
            figure, axes = pyplot.subplots(figsize=WIDE)
            draw(axes)
            open_frame(axes, "top", "right")
            figure.tight_layout()
            figure.savefig(folder / name, metadata={"Date": None})
            pyplot.close(figure)


if __name__ == "__main__":
    draw_all()
