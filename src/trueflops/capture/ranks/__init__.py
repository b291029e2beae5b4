"""The other ranks, which do not exist: the program runs as one rank of many.

distributed.py  torch.distributed: process groups of any size
collective.py   one collective, as the program asks for it
collectives.py  which ranks take part in a collective, and on which stream; work.py: its handle
identical.py    values of a collective's results, as if all ranks held the same
messages.py     objects sent point to point, as between the stages of a pipeline
board.py        ranks side by side, each in a process of its own
dtensors.py     DTensors and other tensors that wrap tensors
"""
