"""Published results of servers: a row in, a deployment and its load out, and the prediction.

points.py      points of loaded servers; harness.py: how these were measured
latency.py     percentiles under a stated load, sent.py: that load,
               conversations.py: lengths of ShareGPT,
               command.py: what only the benchmark's command says of it,
               bench_serving.py: what SGLang's own benchmark draws, and sends again
inference.py   published tokens per second and latencies; lengths.py: those that a data set states
speculative.py published speed-ups by drafts; passes.py: passes of decoding measured alone
kv_cache.py    what engines print at start; towers.py: encoders beside a language model
served_model.py  a model by its name; stand_in.py: one of which only the size is known
format.py      free text to formats and engine
pools.py       rows of prefill and decode on workers of their own
deployment.py  a model on a server, each load predicted once
"""
