"""The accelerator that is not there, as the program sees it.

fake_tensors.py  tensors without data that claim to be on a device
shape_cache.py   output shapes that were worked out before
values.py        small tensors whose values are known all the same
masks.py         how much a mask selects; routing.py: what a router's topk chooses
facts.py         what is known of the others: their sign, how many are not zero
reads.py         functions of torch that read values; numbers.py: what `.item()` gives where unknown
overrides.py     torch functions that would ask a driver before the dispatcher sees them
machine.py       torch.cuda, answered by the catalog; streams.py: streams and events
driver.py        what lies below torch.cuda and a CPU build lacks
graphs.py        CUDA graphs, by what was called while they were captured
engine.py        what autograd does in place when no dispatch mode is active
autocast.py      autocast's casts
attention.py     the calls that an attention becomes; sdp_choice.py: whose kernel torch would take
flex.py          flex_attention, generated or plain
fused.py         ops that are one kernel on CUDA; shapes.py: meta kernels that torch lacks
temporaries.py   memory that a kernel takes for itself
compiled.py      torch.compile as a marked region; extensions.py: kernels compiled by the program
"""
