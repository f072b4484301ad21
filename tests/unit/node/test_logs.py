"""Reading CRI logs."""

import asyncio

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from motley.cli.main import main
from motley.node import logs
from motley.node.logs import Options

TIME = "2026-11-15T12:00:{:02d}.000000000Z"


def entry(number, text, stream="stdout", tag="F"):
    return f"{TIME.format(number % 60)} {stream} {tag} {text}\n"


class Clock:
    """A clock whose sleeps are over at once and may do something."""

    def __init__(self, during=()):
        self.during = list(during)

    def now(self):
        return 0.0

    def monotonic(self):
        return 0.0

    async def sleep(self, seconds):
        if self.during:
            self.during.pop(0)()


async def collect(path, options=Options(), clock=None, is_over=lambda: True):  # noqa: B008
    return b"".join([p async for p in logs.read(path, options, clock or Clock(), is_over)]).decode()


@pytest.fixture
def path(tmp_path):
    log = tmp_path / "0.log"
    log.write_text("".join(entry(i, f"line {i}") for i in range(10)))
    return log


async def test_everything_is_read_by_default(path):
    assert await collect(path) == "".join(f"line {i}\n" for i in range(10))


@pytest.mark.parametrize("wanted", [0, 1, 3, 10, 99])
async def test_the_tail_is_whole_lines(path, wanted):
    expected = "".join(f"line {i}\n" for i in range(max(0, 10 - wanted), 10))
    assert await collect(path, Options(tail_lines=wanted)) == expected


@given(
    lines=st.lists(st.tuples(st.integers(0, 200), st.booleans()), max_size=40),
    wanted=st.integers(0, 45),
)
def test_the_tail_equals_the_end_of_everything(tmp_path_factory, lines, wanted):
    path = tmp_path_factory.mktemp("log") / "0.log"
    # A line may be split into pieces by the runtime: they count as one.
    entries = [
        part
        for n, (size, split) in enumerate(lines)
        for part in ([entry(n, "x" * size, tag="P")] if split else [])
        + [entry(n, f"{n}-" + "y" * size)]
    ]
    path.write_text("".join(entries))
    everything = asyncio.run(collect(path)).splitlines()
    tail = asyncio.run(collect(path, Options(tail_lines=wanted))).splitlines()
    assert tail == everything[len(everything) - min(wanted, len(everything)) :]


async def test_partial_entries_are_joined_and_stamped_once(tmp_path):
    log = tmp_path / "0.log"
    log.write_text(entry(1, "half ", tag="P") + entry(1, "whole") + entry(2, "next"))
    assert await collect(log) == "half whole\nnext\n"
    stamped = await collect(log, Options(timestamps=True))
    assert stamped == f"{TIME.format(1)} half whole\n{TIME.format(2)} next\n"


async def test_since_streams_and_bytes_limit_what_is_read(tmp_path):
    log = tmp_path / "0.log"
    log.write_text(entry(1, "old") + entry(30, "new") + entry(31, "bad", "stderr"))
    from motley.lib.clock import parse_rfc3339

    since = parse_rfc3339(TIME.format(30))
    assert await collect(log, Options(since=since)) == "new\nbad\n"
    assert await collect(log, Options(stream="Stderr")) == "bad\n"
    assert await collect(log, Options(limit_bytes=6)) == "old\nne"


async def test_rotated_files_come_first_and_the_tail_reaches_into_them(path):
    path.rename(path.with_name("0.log.20261115120000"))
    path.write_text(entry(50, "fresh"))
    assert (await collect(path)).splitlines()[-2:] == ["line 9", "fresh"]
    assert await collect(path, Options(tail_lines=2)) == "line 9\nfresh\n"


async def test_following_goes_on_through_rotation_without_loss(path):
    over = False

    def more():
        with path.open("a") as file:
            file.write(entry(11, "more"))

    def rotate():
        with path.open("a") as file:
            file.write(entry(12, "last of the old"))
        path.rename(path.with_name("0.log.1"))

    def fresh():
        path.write_text(entry(13, "first of the new"))

    def end():
        nonlocal over
        with path.open("a") as file:
            file.write(entry(14, "the end"))
        over = True

    clock = Clock([more, rotate, fresh, end])
    text = await collect(path, Options(follow=True, tail_lines=1), clock, lambda: over)
    assert text.splitlines() == [
        *("line 9", "more", "last of the old", "first of the new", "the end"),
    ]


async def test_a_line_still_being_written_is_waited_for(tmp_path):
    log = tmp_path / "0.log"
    whole = entry(1, "slowly written")
    log.write_text(whole[:40])
    over = False

    def finish():
        nonlocal over
        log.write_text(whole)
        over = True

    assert await collect(log, Options(follow=True), Clock([finish]), lambda: over) == (
        "slowly written\n"
    )


async def test_a_log_that_does_not_exist_is_empty(tmp_path):
    assert await collect(tmp_path / "none.log") == ""


def test_nonsense_is_no_entry():
    assert logs.parse(b"what is this\n") is None
    assert logs.parse(b"") is None


def test_the_logs_of_a_pod_are_removed_by_uid(tmp_path):
    (tmp_path / "ns_a_1").mkdir()
    (tmp_path / "ns_b_2").mkdir()
    logs.remove(tmp_path, "1")
    assert [p.name for p in tmp_path.iterdir()] == ["ns_b_2"]


async def test_following_goes_through_every_file_of_several_rotations_between_two_looks(path):
    over = False

    def flood():
        nonlocal over
        path.rename(path.with_name("0.log.1"))
        path.with_name("0.log.2").write_text(entry(11, "in between"))
        path.with_name("0.log.3").write_text(entry(12, "and after"))
        path.write_text(entry(13, "now"))
        over = True

    text = await collect(
        path, Options(follow=True, tail_lines=1), Clock([lambda: None, flood]), lambda: over
    )
    assert text.splitlines() == ["line 9", "in between", "and after", "now"]


async def test_following_goes_on_with_the_oldest_file_left_when_its_own_was_removed(path):
    over = False

    def flood():
        nonlocal over
        path.unlink()
        path.with_name("0.log.2").write_text(entry(11, "kept"))
        path.write_text(entry(12, "now"))
        over = True

    text = await collect(
        path, Options(follow=True, tail_lines=1), Clock([lambda: None, flood]), lambda: over
    )
    assert text.splitlines() == ["line 9", "kept", "now"]


async def test_what_came_between_the_last_look_and_the_rotation_is_not_lost(path, monkeypatch):
    """A line may reach the old file after it was read to its end and before the new one is there:
    as if the disk were asked in exactly that moment."""
    over = False
    real = logs._was_replaced

    def at_the_worst_moment(handle, where):
        nonlocal over
        answer = real(handle, where)
        if not over:
            over = True
            with where.open("a") as file:
                file.write(entry(11, "last of the old"))
            where.rename(where.with_name("0.log.1"))
            where.write_text(entry(12, "new"))
        return answer

    monkeypatch.setattr(logs, "_was_replaced", at_the_worst_moment)
    text = await collect(path, Options(follow=True, tail_lines=1), Clock(), lambda: over)
    assert text.splitlines() == ["line 9", "last of the old", "new"]


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("--container-log-max-size=100m", "mebibytes are written 100Mi"),
        ("--container-log-max-size=much", "quantities must match"),
        ("--container-log-max-files=1", "x>=2"),
        ("--container-log-monitor-interval=often", "no duration"),
    ],
)
def test_a_rotation_nobody_can_mean_is_refused(flag, why):
    done = CliRunner().invoke(main, ["node", flag])
    assert done.exit_code == 2
    assert why in done.output


def test_the_end_of_a_log_has_no_newline_that_nobody_wrote(tmp_path):
    path = tmp_path / "0.log"
    path.write_text("2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:01Z stdout P DONE\n")
    assert logs.tail(path, 10) == b"one\nDONE"
