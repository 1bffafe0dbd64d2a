"""`evr-train job=conformance`: whether engine and learner are one policy on a given checkpoint.

It asks the processes of a training run about clips written for the purpose, so that the whole way
from a file to a log-prob is the one that training takes. Users run it before a week of GPU time.
"""
