"""The store in etcd: for several API servers over one state, and for those who run etcd already.

store.py        the contract, put together
connection.py   calls with deadlines, fail-over and a bound on what is in flight
watching.py     the one watch that everything follows, resumed where it broke
mapping.py      keys, transactions and answers as messages; decides, but does not talk
errors.py       what etcd's refusals mean
etcd.proto      the messages (`tools/gen_protos.py` makes the classes)
"""
