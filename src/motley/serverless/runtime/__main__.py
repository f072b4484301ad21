"""The first process of a function's pod: `python3 -m motley_runtime`."""

from .server import main

if __name__ == "__main__":
    main()
