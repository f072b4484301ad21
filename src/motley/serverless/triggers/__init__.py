"""What calls functions without anybody asking: the clock, changes of objects, paths.

    firing.py   which moments are due, what an Invocation is called (pure)
    routes.py   which function a request's host and path mean (pure)
    service.py  one task per Trigger: waits or watches, and creates Invocations

Invariant: a moment or a change makes one Invocation, whatever crashes: its name says what it is of.
"""
