"""What was recorded and measured, as plain data with its readers: nothing here runs or predicts.

Rooms that write these (capture, measure, interop) and rooms that read them (profile, predict,
calibrate, verify, report) need not know one another. Each file is imported by its own name, since
measure, on a node with torch and numpy alone, imports only those that are the standard library's.
recording.py  a captured program: calls, storages that came and went, waits
call_text.py  a call of an ATen op as cells of a table
baseline.py   a captured step as it was accepted, for `trueflops guard` to compare with
trace.py      a run as a profiler saw it: work on the device, ops on the host
measured.py   a measurement of one device, as the file that `trueflops measure` writes
ceilings.py   the fastest that such a file holds; limits.py: what physics does not allow
formats.py    number formats of products: how wide they are, whose peak bounds them
tables.py     CSV tables, row by row
rows.py       a measured row: what it is, on which chip, its seconds
split.py      which rows are held out of every fit
chips.py      the chip that a text names
"""
