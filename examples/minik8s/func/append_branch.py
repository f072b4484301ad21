"""Says that the other way was taken."""


def run(arg):
    return arg + " (not a greeting)"


def check(arg):
    return True
