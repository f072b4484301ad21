#!/bin/sh
# What a function needs before it runs is installed here; this one needs nothing.
