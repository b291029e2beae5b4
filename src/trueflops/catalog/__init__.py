"""What exists: accelerators, links, nodes, clusters, prices, number formats and model configs.

Facts live in data/ as TOML, each with its origin and a key into data/sources.toml.

facts.py         Fact, Origin: no source, no fact
names.py         finding a record by what a user types
accelerators.py  one chip as software sees it       links.py   kinds of links
architectures.py what all chips of a kind share     peaks.py   units × FMA × 2 × clock
nodes.py         one host and what joins its chips  fabric.py  tiers of a cluster
clusters.py      64xH100, Selene, my-cluster.toml   prices.py  rents and purchase prices
measured.py      several of a device that no catalog knows
formats.py       fp64 … fp4: bits, range, epsilon   models.py  config.json fields
errata.py        where the documents are wrong      networks.py  4x100Gb, 8x400Gb
peaks.py         peaks from units × FMA × clock     lookup.py  a record of any kind by its name
operation.py     failures, spot, storage, PUE, hosting
visible.py       memory that a program sees
partitions.py    slices of a GPU (MIG)
"""

from trueflops.catalog.accelerators import DTYPES as DTYPES
from trueflops.catalog.accelerators import Accelerator as Accelerator
from trueflops.catalog.accelerators import accelerator as accelerator
from trueflops.catalog.accelerators import accelerators as accelerators
from trueflops.catalog.clusters import Cluster as Cluster
from trueflops.catalog.clusters import cluster as cluster
from trueflops.catalog.clusters import cluster_of as cluster_of
from trueflops.catalog.clusters import host_bandwidth as host_bandwidth
from trueflops.catalog.errata import errata_about as errata_about
from trueflops.catalog.fabric import PROTOCOLS as PROTOCOLS
from trueflops.catalog.fabric import Tier as Tier
from trueflops.catalog.facts import Fact as Fact
from trueflops.catalog.facts import Origin as Origin
from trueflops.catalog.facts import weakest as weakest
from trueflops.catalog.models import model_config as model_config
from trueflops.catalog.prices import Price as Price
from trueflops.catalog.prices import mean_price as mean_price
from trueflops.catalog.prices import price as price
