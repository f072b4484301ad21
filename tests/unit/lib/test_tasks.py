"""Running a component: its end on a signal, in a real process."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, signal, sys
from motley.lib import tasks
if {stock}:
    sys.modules["uvloop"] = None  # as where it is not installed

async def child():
    try:
        await asyncio.Event().wait()
    finally:
        print("child cleaned up", flush=True)

async def main():
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            print("ready", flush=True)
            {body}
    finally:
        print("main cleaned up", flush=True)

tasks.run(main())
print("ended", flush=True)
"""


def start(body, *, stock=False):
    program = PROGRAM.format(stock=stock, body=body)
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    try:
        return process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("stock", [False, True], ids=["uvloop", "asyncio"])
def test_a_signal_ends_the_program_cleanly_and_runs_its_finally_blocks(number, stock):
    process = start("await asyncio.Event().wait()", stock=stock)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, err = finish(process)
    assert out == "child cleaned up\nmain cleaned up\nended\n"
    assert (process.returncode, err) == (0, "")


def test_a_failure_is_not_taken_for_a_stop():
    process = start("raise ValueError('broken')")
    out, err = finish(process)
    assert "main cleaned up\n" in out
    assert "ended" not in out
    assert process.returncode == 1
    assert "ValueError: broken" in err


def test_a_cancellation_from_inside_is_not_taken_for_a_stop():
    process = start("raise asyncio.CancelledError")
    out, _ = finish(process)
    assert "ended" not in out
    assert process.returncode != 0
