"""The accelerator that is not there, as the program sees it.

ghosts.py     tensors without data that say where they are
values.py     small tensors whose numbers are known all the same; reads.py, numbers.py: who asks
machine.py    torch.cuda, answered by the catalog; streams.py: streams and events
doors.py      functions that go past the dispatcher
engine.py     what autograd does in place when nobody watches
autocast.py, attention.py, fused.py, shapes.py   what torch decides by asking a CUDA build
compiled.py   torch.compile as a mark
"""
