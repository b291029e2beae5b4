"""The judge: measured results in, predictions of the same beside them, errors out.

findings.py    Finding, Refusal, Findings: what every reader of truth returns
recognise.py   which reader a table needs, by its header
training.py    published training runs, row by row a Case; vtrain.py: iteration times of one node
  run_model.py   the model of a row              run_cluster.py  its chips and network
  run_plan.py    its plan                        run_measured.py what it measured, as seconds
  run_tuning.py  what of it was trained          run_dtypes.py   in which dtypes
  frameworks.py  free texts as keys              run_attention.py whose attention it ran
  run_scripts.py what its script says beside     run_words.py    many words for a few things
  run_written.py functions or fused kernels      run_recipes.py what NVIDIA's recipes set of it
kv_cache.py    what engines print at start; towers.py: encoders beside a language model
inference.py   published tokens per second and latencies; serving.py: points of loaded servers,
               harness.py: how these were measured; latency.py: percentiles under a stated load,
               sent.py: that load, conversations.py: lengths of ShareGPT,
               bench_serving.py: what SGLang's own benchmark draws, and sends again
speculative.py published speed-ups by drafts
  served_model.py a model by its name            stand_in.py     one of which only the size is known
  run_format.py  free text to formats and engine run_lengths.py  lengths that a data set states
  pools.py       rows of prefill and decode on workers of their own
  deployment.py  a model on a server, each load predicted once
kernels.py     tables of measured kernels; measured.py: judged under a measured profile
passes.py      passes of decoding measured alone
regimes.py     what accuracy is claimed; regime_rows.py: of which rows
cells.py       cells as numbers, or why not
profiles.py    which profile a run is predicted with
score.py       errors by group and over all groups
"""
