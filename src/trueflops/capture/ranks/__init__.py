"""The other ranks, who are not there: one process is one rank of many.

distributed.py  process groups of any size; letters.py: what earlier ranks would have told
meeting.py      one collective, as it is asked for
collectives.py  who meets whom, on which stream; works.py: what a call gives to wait for
alike.py        numbers that come out as if all ranks were alike
dtensors.py     tensors that are spread over ranks
"""
