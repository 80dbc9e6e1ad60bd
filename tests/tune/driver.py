"""hipnorm-tune, run as a user runs it, and sweeps whose worker makes its answers up.

HIPNORM_TUNE: the program.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

TUNE = os.environ["HIPNORM_TUNE"]
FAKE = f"{sys.executable} {Path(__file__).with_name('fake_worker.py')}"
DEFAULT = "cpu_forward_row:rows_per_block=1,vec_bytes=16,parts=1,stream=0"
CELL = "forward f32 weight=f32 bias=1 64x256"
ROOT = Path(__file__).resolve().parents[2]


def config(parts):
    return f"cpu_forward_row:rows_per_block=1,vec_bytes=16,parts={parts},stream=0"


def environment(more=None):
    variables = {k: v for k, v in os.environ.items() if not k.startswith("HIPNORM_CONFIG")}
    return {**variables, **(more or {})}


def tune(*args, env=None, timeout=300):
    return subprocess.run(
        [TUNE, *map(str, args)],
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def this_build():
    """The hash of the sources that the program was built from, as its worker says it."""
    hello = json.dumps({"do": "hello", "device": "cpu"})
    reply = subprocess.run(
        ["sh", "-c", 'exec "$0" worker 3>&1 >/dev/null', TUNE],
        input=hello + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(reply.stdout)["build"]


class Sweep:
    """A sweep with the fake worker, in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.journal = folder / "journal.jsonl"
        self.log = folder / "log"
        self.log.touch()

    def arguments(self, *more, shapes="64x256"):
        return [
            "--worker", *FAKE.split(), "sweep", "--shapes", shapes, "--dtype", "f32",
            "--direction", "forward", "--journal", self.journal, *more,
        ]  # fmt: skip

    def env(self, plan, **more):
        return {"FAKE_PLAN": json.dumps(plan), "FAKE_LOG": str(self.log), **more}

    def run(self, plan, *more, shapes="64x256", **env):
        return tune(*self.arguments(*more, shapes=shapes), env=self.env(plan, **env))

    def lines(self, kind):
        lines = [json.loads(line) for line in self.journal.read_text().splitlines()]
        return [line for line in lines if line["type"] == kind]

    def edit(self, change):
        """Writes the journal anew, each line as change(line) leaves it."""
        lines = [json.loads(line) for line in self.journal.read_text().splitlines()]
        for line in lines:
            change(line)
        self.journal.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def outcomes(self):
        return {line["config"]: line["outcome"] for line in self.lines("candidate")}

    def winner(self):
        (result,) = self.lines("result")
        return result["config"]

    def logged(self):
        return self.log.read_text().splitlines()

    def tries(self):
        return [line[4:] for line in self.logged() if line.startswith("try ")]
