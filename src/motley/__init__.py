"""Motley: a Kubernetes-compatible orchestrator for clusters of unlike machines."""

__version__ = "0.1.0"
