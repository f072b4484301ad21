"""Replays recorded API scenarios against a server and says where its answers differ.

    scenario.load ─► runner.play ─► compare.answers ─► report

A recording holds requests and the answers of a real kube-apiserver. The replayer sends the same
requests to Motley (or to any server by URL) and compares what comes back by the recording's own
rules: status code and reason first, because clients act on them, then the whole answer.

Invariant: the replayer decides nothing by looking at which server answers.
"""
