"""Imported once by the server process from which workers are forked; see `workers.pool`."""

from easyvideor1.rewards.workers import load_tasks

load_tasks()
