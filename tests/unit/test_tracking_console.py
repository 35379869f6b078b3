"""What the person sees: lines in a pipe, a panel on a terminal, and never a terminal taken over by model text."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import textwrap

import pytest
from rich.console import Console as RichConsole

from rlvr.errors import ConfigError
from rlvr.tracking.console import OffConsole, PlainConsole, open_console, printable, step_line
from rlvr.tracking.console_live import LiveConsole, sparkline
from tests.tracking_samples import result

METRICS = {
    "step": 3,
    "reward/mean": 0.5,
    "learner/logprob_gap": 2e-5,
    "groups/trained": 6,
    "groups/dropped": 2,
    "groups/failed": 0,
    "groups/total_dropped": 5,
    "rollout/length_mean": 31.6,
    "rollout/tokens_per_s": 311.2,
    "time/step_s": 12.0,
    "time/alone/rollout_s": 8.0,
    "time/alone/learner_s": 3.9,
    "time/overhead_s": 0.1,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_say_what_happens():
    stream = io.StringIO()
    console = PlainConsole(stream, steps=8, now=iter([0.0, 1.5, 2.0, 3.0, 4.0]).__next__)
    console.phase("starting 1 engine")
    console.step(METRICS)
    console.evaluation(result(8, 71, 60))
    console.message("done")
    assert stream.getvalue().splitlines() == [
        "[    1.5s] starting 1 engine ...",
        "[    2.0s] step 3/8 | reward 0.500 | gap 2.0e-05 | trained 6 | dropped 2 | length 32 | tokens/s 311"
        " | 12.0 s: rollout 8.0, learner 3.9, overhead 0.1",
        "[    3.0s] accuracy after step 8: 71.0% (61.5% to 79.0%, n=100), strict 60.0% (50.2% to 69.1%, n=100)"
        " | 1000 tokens in 4.0 s",
        "[    4.0s] done",
    ]


def test_a_step_without_most_metrics_still_has_a_line():
    assert step_line({"step": 1, "time/step_s": 2.0}, 0) == "step 1 | 2.0 s"


def test_control_codes_in_text_are_made_visible():
    assert printable("\x1b[2Jhi\x07\u009b31m\tok\n") == "\\x1b[2Jhi\\x07\\x9b31m\tok\n"


def test_a_pipe_whose_reader_is_gone_does_not_end_the_run():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        console = PlainConsole(stream, steps=0)
        console.message("nobody reads this")
        console.message("nor this")
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def test_an_ascii_stream_gets_what_it_can_show():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    PlainConsole(stream, steps=0).message("5 \u2264 6")
    assert raw.getvalue().endswith(b"5 ? 6\n")


def test_the_mode_chooses(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_console("auto", title="", steps=1, stream=io.StringIO()), PlainConsole)
    assert isinstance(open_console("off", title="", steps=1, stream=Terminal()), OffConsole)
    live = open_console("auto", title="", steps=1, stream=Terminal())
    live.close()
    assert isinstance(live, LiveConsole)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_console("auto", title="", steps=1, stream=Terminal()), PlainConsole)
    with pytest.raises(ConfigError, match=r"track\.console=loud"):
        open_console("loud", title="", steps=1, stream=io.StringIO())


@pytest.mark.parametrize("width", [12, 40, 80, 200])
def test_the_panel_fits_its_window_and_shows_the_sample_as_text(width):
    console = LiveConsole(io.StringIO(), title="run [bold]", steps=8, width=width)
    console.phase("starting 1 engine")
    console.step(METRICS)
    console.evaluation(result(0, 37, 20))
    console.sample("Question:\n3 + 4 = ?", "[red]7[/red] \x1b[2J " + "x" * 300 + "\n" * 40 + "end", "score 1, ok")
    target = RichConsole(file=io.StringIO(), width=width, markup=False)
    target.print(console._draw())
    console.close()
    shown = target.file.getvalue()
    assert all(len(line) <= width for line in shown.splitlines())
    assert "\x1b[2J" not in shown
    if width >= 80:
        assert "step 3/8" in shown
        assert "rollout 8.0 s" in shown
        assert "37.0%" in shown
        assert "dropped groups 5" in shown
        assert "[red]7[/red]" in shown
        assert "last sample: 3 + 4 = ?" in shown


def test_a_panel_before_anything_happened_can_be_drawn():
    console = LiveConsole(io.StringIO(), title="eval", steps=0)
    console.close()
    console.close()


def test_after_ctrl_c_the_terminal_is_as_before():
    program = textwrap.dedent(
        """
        import signal, sys, time
        from rlvr.tracking.console import open_console
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        console = open_console("auto", title="run", steps=8, stream=sys.stdout)
        try:
            console.phase("generating")
            print("a line of somebody else", flush=True)
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            console.message("interrupted")
        finally:
            console.close()
        print("the end", flush=True)
        """
    )
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "60", "LINES": "20"}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    output = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not chunk:
            break
        output += chunk
    os.close(master)
    assert process.wait() == 0, output.decode()
    assert output.count(b"\x1b[?25l") == output.count(b"\x1b[?25h") == 1, "the cursor was hidden, and is back"
    assert b"a line of somebody else" in output
    assert b"interrupted" in output
    assert output.rstrip().endswith(b"the end")


def test_a_sparkline_spans_from_the_smallest_to_the_largest():
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█" or sparkline([0.0, 0.5, 1.0]) == "▁▄█"
    assert sparkline([0.3, 0.3]) == "▁▁"
    assert len(sparkline([float(n) for n in range(100)])) == 24
