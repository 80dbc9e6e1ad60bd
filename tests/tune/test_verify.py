"""hipnorm-tune verify, with a worker whose times and verdicts are made up."""

import pytest
from driver import CELL, FAKE, config, tune

# Times come in ticks of 32 ns; the default takes 100 us, its twin as long where there is no noise.
TICK = 0.032


@pytest.fixture
def verify(sweep):
    table = sweep.folder / "table.csv"
    table.write_text(
        "# hipnorm configs 1 arch=cpu-test\n"
        "op,x,weight,bias,cols,rows,config,time_us,default_us,compute_units,sources\n"
        f'forward,f32,f32,1,256,64,"{config(2)}",90,100,2,-\n'
        f'forward,f32,f32,1,512,64,"{config(3)}",90,100,2,-\n'
    )

    def run(behaviour, *more, noise="0", **env):
        return tune("--worker", *FAKE.split(), "verify", "--table", table, *more,
                    env=sweep.env({config(2): behaviour}, FAKE_NOISE=noise, **env))  # fmt: skip

    return run


@pytest.mark.parametrize(
    "behaviour, noise, word",
    [
        (90.0, "0", "good"),
        (100.0, "0", "good"),
        (100.0 + TICK, "0", "good"),  # one tick is chance, however well the twins agree
        (100.0 + 2 * TICK, "0", "slower"),
        (150.0, "0", "slower"),
        (104.0, "0.02", "good"),  # within the twins' gap of the slower one
        (104.1, "0.02", "slower"),
        ("wrong", "0", "wrong"),
        ("launch_failed", "0", "launch failed"),
        ("invalid", "0", "invalid"),
        ("crash", "0", "failed"),
        ("zero", "0", "failed"),
        ("nan", "0", "failed"),
    ],
)
def test_verdict(verify, behaviour, noise, word):
    result = verify(behaviour, noise=noise)
    assert result.returncode == (0 if word == "good" else 1), result.stdout
    first, second, summary = result.stdout.splitlines()
    assert first.startswith(f"{word}: {CELL}  {config(2)}")
    assert second.startswith("good: forward f32 weight=f32 bias=1 64x512")  # it goes on
    assert summary == f"2 rows of cpu-test verified, {int(word != 'good')} bad."


@pytest.mark.parametrize(
    "behaviour, word", [(100.0, "right"), (150.0, "right"), ("wrong", "wrong"), ("crash", "failed")]
)
def test_accuracy_only_passes_no_verdict_on_times(verify, behaviour, word):
    result = verify(behaviour, "--accuracy-only")
    assert result.returncode == (0 if word == "right" else 1), result.stdout
    assert [line.split(":")[0] for line in result.stdout.splitlines()[:2]] == [word, "right"]
    assert " us" not in result.stdout


def test_rows_of_another_architecture_are_not_verified(verify):
    result = verify("crash", FAKE_ARCH="cpu-other")
    assert result.returncode == 0 and "0 rows of cpu-other verified" in result.stdout
