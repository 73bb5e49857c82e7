from __future__ import annotations

import signal

# A job that a shell starts in the background ignores Ctrl-C, and so would all processes
# that these tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
