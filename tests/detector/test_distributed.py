"""Dask as the engine: real worker processes, killed in mid-run; the same model to the bit, or one clear sentence."""

import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from eesvm import InputError
from eesvm._support import dask_tasks as distributed
from eesvm.cli import main
from eesvm.datasets import write_voc
from eesvm.descriptors import DescriptorCache
from eesvm.detector import ExemplarDetector
from eesvm.exemplars import svms as exemplars
from helpers.detector_scenes import quick_options, scenes
from helpers.trainings import fitted, model_files

dask = pytest.importorskip("distributed", reason="needs the extra `distributed`")


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes on this machine, each with a nanny that starts it again when it dies."""
    patience = importlib.import_module("dask").config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})
    where = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with patience, dask.LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=0, **where) as made:
        yield made


@pytest.fixture
def engine(cluster):
    with distributed.DaskEngine(cluster) as opened:
        opened.client.wait_for_workers(2, timeout=60)
        yield opened


def pids(client):
    return list(client.run(os.getpid, on_error="ignore").values())


class Killer:
    """A progress callback that kills a worker the first time that a stage is at work."""

    def __init__(self, client, *stages):
        self.client, self.stages, self.killed = client, list(stages), []

    def __call__(self, stage, done, total):
        if self.stages and stage.startswith(self.stages[0]) and done < total:
            self.stages.pop(0)
            self.client.wait_for_workers(2, timeout=60)  # the one that was killed before has started again
            self.killed.append(pids(self.client)[0])
            os.kill(self.killed[-1], signal.SIGKILL)


def total(array, factor, seconds=0.0):
    time.sleep(seconds)
    return float(array.sum()) * factor


def mapped(array):
    return isinstance(array, np.memmap), float(array.sum())


def refuse(value):
    raise InputError(f"{value} is refused")


def die(value):
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.long
def test_tasks_run_elsewhere_and_share_values(engine, tmp_path):
    assert engine.n_workers == 2
    assert engine.task_threads == 1
    assert engine.submit(os.getpid).result() in pids(engine.client)
    array = np.arange(10.0)
    copied = engine.share(array)
    assert engine.submit(mapped, copied).result() == (False, 45.0)
    assert engine.sees(tmp_path)
    engine.keep_in(tmp_path)
    file = engine.share(array)
    assert engine.submit(mapped, file).result() == (True, 45.0)
    assert engine.submit(mapped, engine.share(np.empty((0, 3)))).result()[1] == 0.0
    engine.forget(file)
    engine.forget(copied)
    with pytest.raises(InputError, match="a worker does not see the shared file"):
        engine.submit(mapped, file).result()
    with pytest.raises(InputError, match="3 is refused"):
        engine.submit(refuse, 3).result()
    assert (engine.traffic.written, engine.traffic.shared) == (array.nbytes, 2 * array.nbytes)
    assert list(tmp_path.iterdir())
    engine.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_folder_that_workers_do_not_see(engine, monkeypatch, tmp_path):
    monkeypatch.setattr(engine, "_ask", lambda function, *arguments: {"one": True, "other": False})
    assert not engine.sees(tmp_path)
    assert not engine.sees("/proc/nowhere")  # nor can it be written to here


@pytest.mark.long
def test_what_was_shared_survives_the_death_of_all_workers(engine):
    handle = engine.share(np.ones(1000))
    tasks = [engine.submit(total, handle, k, 0.3) for k in range(6)]
    assert tasks[0].result() == 0.0
    for pid in pids(engine.client):
        os.kill(pid, signal.SIGKILL)
    assert [task.result() for task in tasks[1:]] == [1000.0 * k for k in range(1, 6)]


@pytest.mark.long
def test_a_killed_worker_costs_its_tasks_only(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(exemplars, "_MAX_CHECKPOINT_BLOCK", 4)
    fitted(tmp_path / "serial", cache=DescriptorCache(tmp_path / "one"))
    killer = Killer(engine.client, "descriptors")
    fitted(tmp_path / "killed", cache=DescriptorCache(tmp_path / "other"), scheduler=engine, progress=killer)
    assert len(killer.killed) == 1
    expected = model_files(tmp_path / "serial")
    assert len(expected) > 8
    assert model_files(tmp_path / "killed") == expected


@pytest.mark.slow
def test_results_travel_back_where_the_cache_is_not_shared(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "sees", lambda folder: False)
    killer = Killer(engine.client, "descriptors", "calibrating")
    cache = DescriptorCache(tmp_path / "cache")
    fitted(tmp_path / "apart", cache=cache, scheduler=engine, progress=killer)
    assert killer.killed
    assert engine.traffic.written == 0
    assert cache.info().n_entries == 3 * len(scenes("train", 4))
    fitted(tmp_path / "serial")
    assert model_files(tmp_path / "apart") == model_files(tmp_path / "serial")


@pytest.mark.slow
def test_a_network_and_real_searches_with_workers_killed_at_every_stage(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(exemplars, "_MAX_CHECKPOINT_BLOCK", 4)
    changes = {"calibration__method": "exact", "calibration__node_limit": 20, "n_jobs": 2}
    changes |= {"descriptor__name": "cnn", "descriptor__n_components": 64}
    dataset = scenes("train")
    options = quick_options(**changes)
    ExemplarDetector(options).fit(dataset, calibrators="all", folder=tmp_path / "serial")
    # Blocks wait for the single SVM of their class: the first worker that dies while they are awaited may be training it.
    stages = ["windows", "scaling", "descriptors", "training blocks", "training blocks", "calibrating"]
    killer = Killer(engine.client, *stages)
    ExemplarDetector(options).fit(
        dataset, calibrators="all", folder=tmp_path / "killed", scheduler=engine, progress=killer
    )
    assert len(killer.killed) == len(stages)
    assert model_files(tmp_path / "killed") == model_files(tmp_path / "serial")


@pytest.mark.slow
def test_an_interruption_cancels_what_is_under_way(cluster, tmp_path):
    def interrupt(stage, done, total):
        if stage.startswith("descriptors"):
            raise KeyboardInterrupt

    with dask.Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        with pytest.raises(KeyboardInterrupt):
            fitted(tmp_path / "model", cache=DescriptorCache(tmp_path / "cache"), scheduler=client, progress=interrupt)
        assert wait_for(lambda: not any(client.processing().values()))
        assert client.status == "running"  # it was given, so it stays
    assert not list((tmp_path / "cache").glob("shared-*"))
    fitted(tmp_path / "model", cache=DescriptorCache(tmp_path / "cache"), scheduler=cluster)
    fitted(tmp_path / "serial")
    assert model_files(tmp_path / "model") == model_files(tmp_path / "serial")


@pytest.mark.slow
def test_a_task_that_kills_every_worker_is_given_up(engine):
    with pytest.raises(InputError, match=r"workers of tcp://127.0.0.1:.* died at the same task: give them more memory"):
        engine.submit(die, 1).result()


@pytest.mark.long
def test_other_versions_are_refused(cluster, engine, monkeypatch):
    monkeypatch.setattr(distributed, "__version__", "0.0.7")
    sentence = r"the worker tcp://\S+ has eesvm \S+, but this training is run by eesvm 0.0.7: install that one"
    with pytest.raises(InputError, match=sentence):
        distributed.DaskEngine(cluster)
    with pytest.raises(InputError, match=r"a worker has eesvm \S+, but this training is run by eesvm 0.0.7"):
        engine.submit(refuse, 1).result()  # a worker that came later


@pytest.mark.long
def test_what_cannot_be_pickled_is_named(engine, tmp_path):
    lock = threading.Lock()
    dataset = scenes("train", 4)
    record = dataset[1]

    def read():
        with lock:
            return record.read()

    images = tuple(replace(r, read=read) if r is record else r for r in dataset)
    sentence = f"the image {record.image_id!r} cannot be sent to workers, because it cannot be pickled: cannot pickle"
    with pytest.raises(InputError, match=sentence):
        fitted(tmp_path / "model", dataset=replace(dataset, images=images), scheduler=engine)
    with pytest.raises(InputError, match="a lock cannot be sent to workers, because it cannot be pickled"):
        engine.submit(refuse, engine.share(lock)).result()


@pytest.mark.long
def test_a_scheduler_that_is_not_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(distributed, "_CONNECT_SECONDS", 1.0)
    address = f"tcp://127.0.0.1:{free_port()}"
    write_voc(scenes("train", 4), tmp_path / "data")
    call = ["train", str(tmp_path / "data"), "-o", str(tmp_path / "model"), "--quiet", "--scheduler"]
    assert main([*call, address]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"eesvm: error: there is no Dask scheduler at {address}: ")
    assert errors.count("\n") == 1
    for nonsense in ("somewhere", "nonsense://somewhere", ""):
        assert main([*call, nonsense]) == 1
        sentence = f"`scheduler` must be an address such as tcp://HOST:PORT, or local, got {nonsense!r}"
        assert capsys.readouterr().err == f"eesvm: error: {sentence}\n"
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_a_scheduler_that_is_killed(tmp_path):
    script = "from dask.__main__ import main; main()"
    address = f"tcp://127.0.0.1:{free_port()}"
    scheduler, worker = (
        subprocess.Popen([sys.executable, "-c", script, *call, "--no-dashboard"], stderr=subprocess.DEVNULL)
        for call in (
            ["scheduler", "--host", "127.0.0.1", "--port", address.split(":")[-1]],
            ["worker", address, "--nthreads", "1", "--memory-limit", "0"],
        )
    )

    def kill(stage, done, total):
        if stage.startswith("descriptors"):
            scheduler.kill()

    try:
        sentence = f"the Dask scheduler at {address} is lost: start it, and the same call resumes from here"
        with pytest.raises(InputError, match=sentence):
            fitted(tmp_path / "model", cache=DescriptorCache(tmp_path / "cache"), scheduler=address, progress=kill)
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()


@pytest.mark.long
def test_a_scheduler_without_workers(monkeypatch):
    monkeypatch.setattr(distributed, "_WORKERS_SECONDS", 0.2)
    with (
        dask.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as empty,
        pytest.raises(InputError, match=r"the Dask scheduler at tcp://127.0.0.1:.* has no workers: start some"),
    ):
        distributed.DaskEngine(empty)


@pytest.mark.slow
def test_the_command_line_with_an_address(cluster, tmp_path):
    write_voc(scenes("train", 4), tmp_path / "data")
    sets = {
        "descriptor.n_components": "none",
        "descriptor.kernel_map": "none",
        "windows.mode": "single",
        "calibration.method": "greedy",
    }
    call = ["train", str(tmp_path / "data"), "--descriptor", "hog", "--quiet"]
    call += [f"--set={name}={value}" for name, value in sets.items()]
    assert main([*call, "-o", str(tmp_path / "serial"), "--no-cache"]) == 0
    command = [*call, "--cache", str(tmp_path / "cache"), "-o", str(tmp_path / "split")]
    # The nanny of a local cluster sets numbers of threads in our own environment, too.
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-m", "eesvm", *command, "--scheduler", cluster.scheduler_address],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert model_files(tmp_path / "split") == model_files(tmp_path / "serial")
