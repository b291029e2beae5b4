"""What a chip really delivers: curves with few parameters, each with its origin and its error.

keys.py       CurveKey: which kernels a curve is of, and what is more general
profile.py    Profile, Curve, Landmarks; which curve is chosen for a key
datasheet.py  the best that is known of a chip, and a profile for one known by its datasheet alone
frameworks.py what a framework is: its settings and habits
under.py      what it makes of a chip: its settings over the chip's curves
engines.py    how an engine runs requests: memory share, token budget, which come first
runnable.py   which plans it can run
speculation.py  how tokens are drafted, how many are accepted, what an engine adds
siblings.py   what chips of one die share
host_speed.py how much slower or faster than usual a host is
correction.py what a few real steps correct of it
stored.py     profiles as files           library.py  profiles by name
data/         profiles fitted by `trueflops calibrate`, and what is assumed where nothing is fitted
"""

from trueflops.profile.datasheet import from_datasheet as from_datasheet
from trueflops.profile.datasheet import profile_of as profile_of
from trueflops.profile.engines import Engine as Engine
from trueflops.profile.engines import engine_of as engine_of
from trueflops.profile.engines import engine_on as engine_on
from trueflops.profile.frameworks import frameworks as frameworks
from trueflops.profile.host_speed import of_host as of_host
from trueflops.profile.host_speed import slower_host as slower_host
from trueflops.profile.keys import CurveKey as CurveKey
from trueflops.profile.profile import Choice as Choice
from trueflops.profile.profile import Curve as Curve
from trueflops.profile.profile import FittedRows as FittedRows
from trueflops.profile.profile import HeldOut as HeldOut
from trueflops.profile.profile import Landmarks as Landmarks
from trueflops.profile.profile import Lineage as Lineage
from trueflops.profile.profile import Profile as Profile
from trueflops.profile.siblings import fact_of_die as fact_of_die
from trueflops.profile.stored import read_profile as read_profile
from trueflops.profile.stored import write_profile as write_profile
