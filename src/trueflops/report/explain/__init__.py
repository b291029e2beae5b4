"""A kernel explained: tables that fit the terminal, and the same numbers as JSON.

page.py   what every kernel's page has      matmul.py  attention.py   the rest of each
"""

from trueflops.report.explain.attention import encode_attention as encode_attention
from trueflops.report.explain.attention import show_attention as show_attention
from trueflops.report.explain.matmul import encode_matmul as encode_matmul
from trueflops.report.explain.matmul import show_matmul as show_matmul
