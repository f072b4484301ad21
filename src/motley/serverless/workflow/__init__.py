"""Workflows, as pure decisions: what is written down decides what comes next.

    program.py   a Workflow's spec, read and checked
    engine.py    program + what each step did so far → what to do now
    tree.py      the same, for people

Nothing here waits or talks. The executor writes each step's outcome into the Invocation before it
asks again, so a crash at any point is a question asked twice.
"""
