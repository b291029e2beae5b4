"""What a chip really delivers: curves with few parameters, each with its origin and its error.

profile.py    Profile, Curve
datasheet.py  a profile for a chip of which only the datasheet is known
data/         the constants that such a profile assumes, each with its reason
"""

from trueflops.profile.datasheet import from_datasheet as from_datasheet
from trueflops.profile.profile import Curve as Curve
from trueflops.profile.profile import Profile as Profile
