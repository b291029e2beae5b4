"""Other people's tables, rebuilt from their public repositories in the columns that we read.

    sources.py       which repositories, commits and checksums (sources.toml), and which tables
    repositories.py  files of a pinned commit: fetched from the internet, or read from disk
    large_files.py   files that a repository keeps outside of git (Git LFS)
    kernels.py       ops/*.csv: tables of kernels and collectives
    servers.py       serving_points.csv: points of loaded servers
    runs.py          vtrain_single_node.csv, spec_decode_acceptance.csv
    tables.py        which of them makes which table; what is missing; writing

The command is truth/fetch.py. Nothing here imports trueflops.
"""
