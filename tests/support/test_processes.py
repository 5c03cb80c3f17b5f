"""Workers end with the process they work for, also when that one is killed and can tell nobody."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Each program prints a line once its workers are busy, and would then go on for minutes.
OPENCV = """
from eesvm.datasets.scenes import make_scenes
from eesvm.windows import propose_dataset
if __name__ == "__main__":
    records = list(make_scenes(500, 0))
    for k, _ in enumerate(propose_dataset(records, method="opencv", mode="quality", n_jobs=2)):
        if k == 2:
            print("at work", flush=True)
"""
DASK = """
import time
from eesvm._support.dask_tasks import open_engine
if __name__ == "__main__":
    with open_engine("local", 2) as engine:
        tasks = [engine.submit(time.sleep, 600) for _ in range(2)]
        engine.wait(tasks, 2.0)
        print("at work", flush=True)
        tasks[0].result()
"""


def group_members(group):
    """Processes of a process group, from /proc; those that have ended and are not yet reaped do not count."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue  # it has just ended
        if int(of_group) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize(("program", "package"), [(OPENCV, "cv2.ximgproc"), (DASK, "distributed")])
@pytest.mark.long
def test_no_worker_survives_a_parent_that_is_killed(program, package, tmp_path):
    pytest.importorskip(package)
    (tmp_path / "program.py").write_text(program)
    parent = subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert parent.stdout.readline() == "at work\n"
        assert len(group_members(parent.pid)) >= 3  # itself and two workers
        parent.kill()
        parent.wait()
        patience = time.monotonic() + 30  # a second or two on a quiet machine
        while (left := group_members(parent.pid)) and time.monotonic() < patience:
            time.sleep(0.1)
        assert left == []
    finally:
        for pid in group_members(parent.pid):
            os.kill(pid, signal.SIGKILL)
        parent.stdout.close()
