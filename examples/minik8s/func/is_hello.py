"""Passes its argument on, and says whether it was a greeting."""


def run(arg):
    return arg


def check(arg):
    return arg == "hello"
