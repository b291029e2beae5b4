"""The scheduler of a serving engine, simulated: requests in, latencies out.

load.py        when requests come and how long they are
step_clock.py  what one step of the engine takes
front.py       what a request passes before it is scheduled
scheduler.py   continuous batching, step by step
outcome.py     percentiles of what users saw, goodput
interval.py    how far these can be trusted
trace_file.py  requests that were recorded
simulated.py   a deployment under a load
"""
