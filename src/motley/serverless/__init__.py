"""Functions: code that runs when it is called, on pods that come and go with the calls.

`scaler` and `pool` decide how many pods there are (pure), `fleet` makes and ends them, `router`
leads calls to them, `executor` carries accepted calls through crashes, `runtime/` is what runs in
the pods.
"""
