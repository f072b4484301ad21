"""Makes a greeting whole."""


def run(arg):
    return arg + " world"


def check(arg):
    return True
