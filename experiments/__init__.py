"""Tables, figures, statistics and plans, drawn from run folders alone; never imports torch."""

import sys

from dsgd.streams import guard_streams

if sys.argv[0] == "-m":  # `python -m experiments.<name>` imports this first
    guard_streams()
