"""A captured program for readers.

step.py    its step and its memory    graph.py  its launches, module by module
advice.py  what would help it         stages.py the stages of a captured pipeline
plot.py    pictures                   files.py  its trace
"""
