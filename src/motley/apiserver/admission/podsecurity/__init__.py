"""PodSecurity: how much of the machine a namespace's pods may touch, by labels on the namespace.

levels.py    what the labels say: level and version for enforce, warn and audit
checks.py    the rules of the Pod Security Standards, one function each
plugin.py    asks the namespace, runs the rules, refuses or warns
"""
