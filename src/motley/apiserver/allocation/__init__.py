"""Service addresses and node ports: how they are chosen, and who holds them.

A number is held by a record in the store: an `IPAddress` for a ClusterIP, a key of its own for a
node port. The record is written in the same transaction as the Service that holds it and removed
with it, so several API servers over one store never give a number out twice.
"""
