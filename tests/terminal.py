"""Runs a program whose standard error is a terminal."""
import os
import pty
import subprocess


def run_on_a_terminal(command, env=None):
    """What it shows there, as bytes, and its standard output. Fails unless it ends with 0."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=slave, text=True
    ) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                block = os.read(master, 4096)
            except OSError:  # the other end is closed
                break
            if not block:
                break
            shown += block
        stdout = process.stdout.read()
        assert process.wait(timeout=60) == 0
    os.close(master)
    return shown, stdout
