"""Imported once by the server from which scoring workers are forked: all that a scorer may import.

So a new worker is there within milliseconds, and no import counts against a deadline.
"""

from easyvideor1.rewards.tasks import open_ended

open_ended.rouge("warm", "up")
