"""Structural schemas: what kinds without a packaged definition look like and how they behave.

Custom resources and Motley's own group share it: pruning, defaulting, validation, rules in CEL,
printer columns. `definition.Definition` bundles all of it for one served version of one kind.
"""
