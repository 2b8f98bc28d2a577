"""The child process: one worker, which claims, converts and settles one job after the other."""
