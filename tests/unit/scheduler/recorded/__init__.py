"""Recorded decisions of a real kube-scheduler, taken again by ours, and how many agree.

`tools/replay-scheduler` runs this by hand, the tests of agreement beside it in every run. A
recording is a file of JSON lines, one cluster each, in one of two forms: sequences of decisions
(`sequences.py`) and preemptions in full clusters (`preemptions.py`).
"""
