"""Typed, read-only views of the objects Motley's own components work with."""
