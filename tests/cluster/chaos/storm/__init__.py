"""What the chaos suite is made of: faults from a seed, a load, a writer and a judge of objects.

`faults` decides what is done to the cluster, and is pure; `load` calls a Service from several
places without pause; `ledger` writes objects and remembers every answer; `bed` does things to a
cluster's processes and cables.
"""
