"""Rules that are written in CEL and stored as objects.

environment.py   what an expression sees: object, oldObject, request, params, …
compiled.py      a policy's expressions, compiled once per version of it
validating.py    ValidatingAdmissionPolicy: refuse, warn
mutating.py      MutatingAdmissionPolicy: patch
syntax.py        refuses policies whose expressions cannot work
status.py        writes down what can be known of a stored policy
"""
