"""What runs in a function's pod: plain Python, nothing but the standard library, 3.9 or later.

`server` takes calls over HTTP, `zygote` holds the loaded code and forks the `worker`s that run
them, `frames` is what the three say to each other, `layer` installs what the code needs.
The package is carried into the pod as files, under the name `motley_runtime`.
"""
