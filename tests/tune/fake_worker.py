"""A worker for hipnorm-tune's tests: answers by the protocol of bench/tune/worker.h, out of its head.

FAKE_PLAN: JSON, config → behaviour: a time in microseconds, or one of
  hang, crash, exit, garbage, two_lines, wrong, invalid, launch_failed, zero, negative, nan,
  once:crash (the first try only), race:crash, race:hang (in a race only),
  first:50 (a time that only the first process finds; later ones 100).
FAKE_LOG: a file that every request is appended to.
FAKE_START: die | mute | garbage | old: how the process behaves from its start.
FAKE_NOISE: relative gap between the default's twins.
FAKE_SLEEP: seconds that a try takes.
FAKE_ARCH, FAKE_NAME, FAKE_UNITS, FAKE_BUILD: what it says of its device and of itself.
"""
import json
import os
import signal
import sys
import time

PLAN = json.loads(os.environ["FAKE_PLAN"])
LOG = os.environ["FAKE_LOG"]
START = os.environ.get("FAKE_START", "")
NOISE = float(os.environ.get("FAKE_NOISE", "0.01"))
DEFAULT = "cpu_forward_row:rows_per_block=1,vec_bytes=16,parts=1,stream=0"
replies = os.fdopen(3, "w", buffering=1)


def log(text):
    with open(LOG, "a", encoding="utf-8") as file:
        file.write(text + "\n")


def seen(text):
    with open(LOG, encoding="utf-8") as file:
        return file.read().splitlines().count(text)


def answer(message):
    replies.write(json.dumps(message) + "\n")


def times(config, rounds, twin=0):
    value = PLAN.get(config, 100.0)
    if isinstance(value, str):
        first = value.startswith("first:") and seen("start") == 1
        value = float(value[6:]) if first else 100.0
    return [value * 1e-6 * (1 + NOISE * twin)] * rounds


def misbehave(behaviour, stage, config):
    if behaviour == "once:crash" and stage == "try" and seen(f"try {config}") == 1:
        behaviour = "crash"
    if behaviour.startswith("race:") and stage == "race":
        behaviour = behaviour[5:]
    if behaviour == "hang":
        time.sleep(1000)
    elif behaviour == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif behaviour == "exit":
        sys.exit(3)
    elif behaviour == "garbage":
        replies.write("\x00\xff no JSON\n")
        time.sleep(1000)
    elif behaviour == "two_lines":
        replies.write('{"ok": true}\n{"ok": true}\n')
        time.sleep(1000)
    else:
        return
    raise AssertionError("unreachable")


if START == "die":
    sys.exit(7)
if START == "mute":
    time.sleep(1000)
print("whatever a kernel prints is no answer")
log("start")
for line in sys.stdin:
    request = json.loads(line)
    what = request["do"]
    if what == "hello":
        if START == "garbage":
            replies.write("garbage\n")
            continue
        answer(
            {
                "ok": True,
                "protocol": 0 if START == "old" else 1,
                "arch": os.environ.get("FAKE_ARCH", "cpu-test"),
                "name": os.environ.get("FAKE_NAME", "fake"),
                "driver": "",
                "compute_units": int(os.environ.get("FAKE_UNITS", "2")),
                "build": os.environ.get("FAKE_BUILD", "fake"),
            }
        )
    elif what == "cell":
        log(f"cell {request['cell']}")
        answer({"ok": True, "default": DEFAULT, "configs": [DEFAULT] + sorted(set(PLAN) - {DEFAULT})})
    elif what == "try":
        config = request["config"]
        log(f"try {config}")
        time.sleep(float(os.environ.get("FAKE_SLEEP", "0")))
        behaviour = PLAN.get(config, 100.0)
        if isinstance(behaviour, str):
            misbehave(behaviour, "try", config)
            if behaviour in ("wrong", "invalid", "launch_failed"):
                answer({"ok": True, "outcome": behaviour.replace("_", " "), "reason": "so said"})
                continue
        rounds = request["rounds"]
        mine = times(config, rounds)
        if behaviour in ("zero", "negative", "nan"):
            mine = [{"zero": 0.0, "negative": -1.0, "nan": float("nan")}[behaviour]] * rounds
        answer(
            {
                "ok": True,
                "outcome": "ok",
                "worst": 0.5,
                "times": [times(DEFAULT, rounds), mine, times(DEFAULT, rounds, 1)] if rounds else [],
            }
        )
    elif what == "race":
        log("race " + " ".join(request["configs"]))
        for config in request["configs"]:
            if isinstance(PLAN.get(config), str):
                misbehave(PLAN[config], "race", config)
        twins = iter((0, 1))
        answer(
            {
                "ok": True,
                "times": [
                    times(c, request["rounds"], next(twins) if c == DEFAULT and i in (0, len(request["configs"]) - 1) else 0)
                    for i, c in enumerate(request["configs"])
                ],
            }
        )
