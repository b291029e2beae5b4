"""Profiles from measurements: one command rebuilds every shipped profile from a truth folder."""
