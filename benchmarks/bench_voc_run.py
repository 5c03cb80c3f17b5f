"""Everything of `bench_voc` in a limited time, on a machine with a GPU and many cores: `python benchmarks/bench_voc_run.py DATA`.

In: the photographs and, if they are there, windows in the folder of `--work`. Out: `results.jsonl` and the parts of the
claims in that folder, each as soon as it is measured; started again, it goes on from there. Networks and descriptors are
prepared by chains of commands that run side by side; classes are measured by a process for each core, at a lower
priority than the chains, in the order of `plan` or `--order`, as far as their tables are there. Photographs of val may
come later than those of train: the chains wait for the file of `--wait-for` before they need them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import bench_voc
from _common import ROOT
from _voc_claims import measure_part, part_file
from _voc_tables import Setting, has_tables, images_of
from eesvm.experiments.reproduction.results import FULL, HOG, SMALL

Namespace = argparse.Namespace

(
    POOLED, CROPS, TUNED, APART, SAME, OTHER, WIDE, WIDE_APART, HOGS, VOC_2012, HALF_VAL, POOLED_MAP, VOC_2012_MAP,
) = bench_voc.SETTINGS  # fmt: skip
ALL_NEGATIVES = 10_000_000  # more than there are
SWEEP = ("car", "chair", "pottedplant", "bottle", "bird", "dog", "bicycle", "motorbike")
FEW = {  # what changes for which setting, one thing at a time
    "coverage": ("across-images",), "criterion": ("platt",), "floor": (0.9, 0.95, 0.98),
    "negatives": (2_000, 20_000, 160_000, ALL_NEGATIVES),
}  # fmt: skip
FEWER: dict[str, tuple[Any, ...]] = FEW | {"floor": (0.95,), "negatives": (2_000, 160_000)}
CURVE = ("bicycle", "bird", "car", "cat", "cow", "dog", "horse", "tvmonitor")  # against photographs
COUNTS = (25, 50, 100, 200, 500)  # exemplars of a class
PATIENCE = 300.0  # seconds for what has been begun in time
VAL = "val"  # a command that needs its photographs
BESIDE, LAST = 5, 10  # priorities of what needs no GPU, and of measuring
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")  # of a process


class Command(NamedTuple):
    """A stage of `bench_voc` that prepares something."""

    words: tuple[str, ...]
    needs_val: bool = False
    needs: tuple[str, ...] | None = None  # files of the work folder; None: windows of the photographs that it needs


class Task(NamedTuple):
    """One piece of work of one process."""

    name: str
    settings: tuple[Setting, ...]  # whose tables it reads
    function: Callable[..., list[dict[str, Any]]]
    inputs: tuple[Any, ...]


def main() -> None:
    arguments, own = parse_arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    os.environ |= dict.fromkeys(THREADS, "1")
    if own.network is not None:
        for kept in (own.network, own.network.with_suffix(".json")):
            if kept.exists():
                shutil.copy(kept, arguments.work / f"{VOC_2012.network}{kept.suffix}")
    chosen = whole_chains(own.network is not None) if own.whole else chains()
    threads = [  # the first chain leaves the cores to those that feed the GPU
        threading.Thread(target=prepare, args=(chain, arguments, own, BESIDE if k == 0 else 0), daemon=True)
        for k, chain in enumerate(chosen)
    ]
    for thread in threads:
        thread.start()
    while own.whole and not (arguments.work / "photographs_val").exists() and time.time() < own.until:
        time.sleep(1)  # objects are counted where all photographs are there
    tasks = list(PLANS[own.order](arguments) if own.whole else plan(arguments))
    measure(tasks, arguments, own, lambda: any(thread.is_alive() for thread in threads))
    tell(arguments, "everything is done, or the time is up")


def parse_arguments() -> tuple[Namespace, Namespace]:
    """Those of `bench_voc`, and our own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--seconds", type=float, default=1200.0, help="after which nothing is begun (1200)")
    add("--cores", type=int, default=os.cpu_count(), help="classes measured at a time (all)")
    add("--wait-for", type=Path, help="a file that is there when the photographs of val are")
    add("--whole", action="store_true", help="the whole of VOC 2007, and a network tuned on photographs of VOC 2012")
    add(
        "--order", choices=list(PLANS), default="default", help="of what is measured of the whole; tables: 4 to 6 first"
    )
    add("--network", type=Path, help="one that is tuned on VOC 2012 already, as an earlier run left it")
    add("--sweep", nargs="+", default=SWEEP, help="classes of the mechanism")
    add("--curve", nargs="+", default=CURVE, help="classes that are looked at against the number of photographs")
    own, others = parser.parse_known_args()
    others += ["--no-mirror", "--processes", str(own.cores)]
    own.words = others
    own.until = time.time() + own.seconds
    arguments = bench_voc.make_parser().parse_args(others)
    arguments.until, arguments.sweep, arguments.curve = own.until, own.sweep, own.curve
    return arguments, own


# Preparing


def network(name: str, *needs: str) -> Command:
    return Command(("--stages", "networks", "--networks", name), needs=needs or None)


def raw(split: str, setting: Setting, *needs: str) -> Command:
    return Command(("--stages", "raw", "--splits", split, "--settings", setting.name), split == VAL, needs or None)


def tables(*settings: Setting, needs: tuple[str, ...] | None = None) -> Command:
    return Command(("--stages", "describe", "--settings", *(one.name for one in settings)), True, needs)


def windows(split: str, *needs: str) -> Command:
    return Command(("--stages", "windows", "--splits", split), split == VAL, needs or None)


def chains() -> list[list[Command]]:
    """Commands that go side by side, those of a chain one after the other."""
    first = [windows("train")]
    return [
        [*first, raw("train", POOLED), windows(VAL), raw(VAL, POOLED), tables(POOLED), tables(HOGS)],
        [network("tuned"), tables(TUNED), tables(APART)],
        [network("4096-d"), tables(WIDE)],
        [raw("train", CROPS), tables(CROPS), network("half"), tables(OTHER), tables(SAME)],
    ]


def whole_chains(has_network: bool) -> list[list[Command]]:
    """Photographs come one part after the other; `photographs_NAME` in the work folder says that a part is there."""
    train, val, made = "windows_train.npz", "windows_val.npz", f"{VOC_2012.network}.onnx"
    there = {split: (f"windows_{split}.npz", f"photographs_{split}") for split in ("train", VAL)}
    described = tuple(f"raw/{VOC_2012.network}_crop_{split}.npy" for split in ("train", VAL))
    tuning = [network(VOC_2012.network, "photographs_network")]  # proposes their windows, too
    return [
        [windows("train", "photographs_train"), raw("train", POOLED, *there["train"]), windows(VAL, "photographs_val"),
         raw(VAL, POOLED, *there[VAL]), tables(POOLED, POOLED_MAP, needs=(train, val)), raw("train", HOGS, train),
         raw(VAL, HOGS, val), tables(HOGS, needs=(train, val))],
        [*([] if has_network else tuning), raw("train", VOC_2012, made, *there["train"])],
        [raw(VAL, VOC_2012, made, *there[VAL]), tables(VOC_2012, VOC_2012_MAP, HALF_VAL, needs=described)],
    ]  # fmt: skip


def prepare(chain: Sequence[Command], arguments: Namespace, own: Namespace, niceness: int) -> None:
    """Run the commands of a chain; one that fails ends it."""
    for command in chain:
        needed = files_for(command, arguments, own)
        while not all(file.exists() for file in needed) and time.time() < own.until:
            time.sleep(1)
        if time.time() > own.until:
            return
        program = [sys.executable, "-u", str(ROOT / "benchmarks" / "bench_voc.py")]
        words = ["nice", "-n", str(niceness), *program, *own.words, *command.words]
        began, several = time.time(), os.environ | dict.fromkeys(THREADS, "4")
        with (arguments.work / "chains.log").open("a") as log:
            done = subprocess.run(words, stdout=log, stderr=log, env=several)
        tell(arguments, f"{' '.join(command.words)}: {time.time() - began:.0f} s, exit {done.returncode}")
        if done.returncode:
            return


def files_for(command: Command, arguments: Namespace, own: Namespace) -> list[Path]:
    """Those that a command waits for."""
    if command.needs is not None:
        return [arguments.work / name for name in command.needs]
    needed = [own.wait_for] if command.needs_val and own.wait_for else []
    if "windows" not in command.words:
        splits = ("train", VAL) if command.needs_val else ("train",)
        needed += [arguments.work / f"windows_{split}.npz" for split in splits]
    return needed


# Measuring


def plan(arguments: Namespace) -> Iterator[Task]:
    """What there is to do, the most wanted first; large classes first, so that no process is left alone with them."""
    classes = bench_voc.classes_of(arguments)
    yield from claims(POOLED, SMALL, classes, arguments)
    yield from claims(POOLED, FULL, classes, arguments)
    yield from judged(POOLED, "default", classes, ("judge", "cross"))
    yield from judged(TUNED, "default", classes, ("judge", "cross"))
    yield from claims(TUNED, SMALL, classes, arguments)
    yield from claims(POOLED, HOG, classes, arguments)
    yield from judged(CROPS, "default", classes, ("judge",))
    yield from judged(WIDE, "default", classes, ("judge",))
    yield from claims(TUNED, FULL, classes, arguments)
    sweep = [name for name in classes if name in arguments.sweep]
    for setting in (OTHER, POOLED, TUNED, SAME):
        yield from judged(setting, "paper", sweep, ("judge", *FEW))
    for setting in (OTHER, POOLED):
        yield from fewer_exemplars(setting, sweep, arguments)
    yield from judged(APART, "default", classes, ("judge", "cross"))
    yield from judged(POOLED, "paper", classes, ("judge",))
    yield from judged(OTHER, "default", classes, ("judge", "cross"))
    yield from fewer_exemplars(POOLED, classes[:1], arguments)
    yield from judged(APART, "paper", sweep, ("judge", *FEW))


def whole_plan(arguments: Namespace) -> Iterator[Task]:
    """The most wanted first; what has frozen descriptors is begun while the others are made."""
    classes = bench_voc.classes_of(arguments)
    sweep, curve = ([name for name in classes if name in wanted] for wanted in (arguments.sweep, arguments.curve))
    yield from claims(VOC_2012, SMALL, classes, arguments)
    yield from judged(VOC_2012, "default", classes, ("judge",))
    yield from claims(VOC_2012, FULL, classes, arguments)
    yield from fewer_exemplars(HALF_VAL, sweep, arguments)
    yield from judged(HALF_VAL, "paper", sweep, ("judge",))
    yield from ways(VOC_2012, "blend", classes, arguments)
    yield from judged(VOC_2012, "default", classes, ("cross",))
    yield from judged(POOLED, "default", classes, ("judge",))
    yield from ways(POOLED, "curve", curve, arguments)
    yield from ways(VOC_2012, "curve", curve, arguments)
    yield from judged(VOC_2012, "paper", classes, ("judge", "coverage"))
    yield from claims(VOC_2012, HOG, classes[::-1], arguments)
    yield from judged(POOLED, "default", classes, ("cross",))
    yield from judged(HALF_VAL, "paper", sweep, tuple(FEWER), FEWER)
    yield from judged(POOLED, "paper", sweep, ("judge",))
    yield from ways(VOC_2012, "curve", classes, arguments)
    yield from claims(POOLED, SMALL, classes, arguments)


def tables_plan(arguments: Namespace) -> Iterator[Task]:
    """Tables 4 to 6 and HOG first, then a kernel map, then what the first run on the whole set left out."""
    classes = bench_voc.classes_of(arguments)
    sweep, curve = ([name for name in classes if name in wanted] for wanted in (arguments.sweep, arguments.curve))
    yield from claims(VOC_2012, FULL, classes, arguments)
    yield from judged(VOC_2012_MAP, "default", classes, ("judge",))
    yield from judged(VOC_2012, "default", classes, ("judge",))
    yield from claims(VOC_2012, SMALL, classes, arguments)
    yield from claims(POOLED, HOG, classes, arguments)  # those of all settings with these roles
    yield from judged(POOLED_MAP, "default", classes, ("judge",))
    yield from judged(POOLED, "default", classes, ("judge",))
    yield from judged(HALF_VAL, "paper", sweep, ("judge",))
    yield from fewer_exemplars(HALF_VAL, sweep, arguments, COUNTS[::-1])
    yield from judged(VOC_2012, "default", classes, ("cross",))
    yield from ways(VOC_2012, "curve", curve, arguments)
    yield from claims(POOLED, SMALL, classes, arguments)
    yield from claims(POOLED, FULL, classes, arguments)
    yield from judged(POOLED, "paper", classes, ("judge",))
    yield from judged(VOC_2012, "paper", classes, ("judge", "coverage"))
    yield from judged(HALF_VAL, "paper", sweep, tuple(FEWER), FEWER)


PLANS: dict[str, Callable[[Namespace], Iterator[Task]]] = {"default": whole_plan, "tables": tables_plan}


def ways(setting: Setting, kind: str, classes: Sequence[str], arguments: Namespace) -> Iterator[Task]:
    for name in classes:
        for item in bench_voc.ways_of(setting, name, arguments):
            if item["kind"] == kind:
                title = f"{setting.name}, {kind} {item['value']}, {name}"
                yield Task(title, (setting,), bench_voc.judge_class, ([item],))


def claims(setting: Setting, stage: str, classes: Sequence[str], arguments: Namespace) -> Iterator[Task]:
    needed = (replace(setting, name=HOGS.name),) if stage == HOG else (setting,)
    for name in classes:
        if not part_file(arguments.work, setting, stage, name).exists():
            yield Task(f"claims {setting.name}, {stage}, {name}", needed, measure_part, (setting, stage, name))


def judged(
    setting: Setting, recipe: str, classes: Sequence[str], kinds: Sequence[str], values: Mapping[str, Any] = FEW
) -> Iterator[Task]:
    for name in classes:
        common = {"setting": setting, "recipe": recipe, "class": name}
        items = [{**common, "kind": kind, "value": value} for kind in kinds for value in values.get(kind, (None,))]
        items = [{key: value for key, value in item.items() if value is not None} for item in items]
        yield Task(f"{setting.name}, {recipe}, {name}", (setting,), bench_voc.judge_class, (items,))


def fewer_exemplars(
    setting: Setting, classes: Sequence[str], arguments: Namespace, counts: Sequence[int] = COUNTS
) -> Iterator[Task]:
    """Of classes that have more."""
    names = [i.class_name for i in images_of(setting.exemplars, arguments).instances() if not i.is_difficult]
    for count in counts:
        for name in (one for one in classes if names.count(one) > count):
            item = {"setting": setting, "recipe": "paper", "class": name, "kind": "exemplars", "value": count}
            title = f"{setting.name}, {count} exemplars, {name}"
            yield Task(title, (setting,), bench_voc.judge_class, ([item],))


def measure(tasks: list[Task], arguments: Namespace, own: Namespace, may_come: Callable[[], bool]) -> None:
    """The first task whose tables are there, whenever a process is free, until the time is up."""
    known = {line["key"] for line in bench_voc.lines_of(arguments) if "key" in line}
    tasks = [left for task in tasks if (left := without_known(task, known)) is not None]  # each thing once
    tell(arguments, f"{len(tasks)} tasks")
    crew = Crew(tasks, arguments, own)
    while (crew.tasks or crew.running) and time.time() < own.until + PATIENCE:
        try:
            if crew.begin():
                continue
            if not crew.running and (time.time() > own.until or not may_come()):
                break
            crew.end()
        except BrokenProcessPool:
            crew.renew()
    crew.pool.shutdown(wait=False, cancel_futures=True)


class Crew:
    """Processes and what they do."""

    def __init__(self, tasks: list[Task], arguments: Namespace, own: Namespace) -> None:
        self.tasks, self.arguments, self.own = tasks, arguments, own
        self.running: dict[Future[list[dict[str, Any]]], tuple[Task, float]] = {}
        self.lost: set[str] = set()
        self.pool = new_pool(own.cores)

    def begin(self) -> bool:
        """Whether a task could be begun."""
        if len(self.running) >= self.own.cores or time.time() > self.own.until:
            return False
        there = {s: has_tables(s, self.arguments) for s in {s for task in self.tasks for s in task.settings}}
        task = next((task for task in self.tasks if all(there[s] for s in task.settings)), None)
        if task is not None:
            self.running[self.pool.submit(task.function, *task.inputs, self.arguments)] = task, time.time()
            self.tasks.remove(task)
        return task is not None

    def end(self) -> None:
        """File what has been finished, if anything within a second."""
        for future in wait(list(self.running), timeout=1.0, return_when=FIRST_COMPLETED).done:
            end_task(future, *self.running[future], self.arguments)
            del self.running[future]
        if not self.running:
            time.sleep(1)

    def renew(self) -> None:
        """A process was killed, and with it all others: what they did is tried once more, last."""
        names = [task.name for task, _ in self.running.values()]
        tell(self.arguments, "a process was killed: " + "; ".join(names))
        self.tasks += [task for task, _ in self.running.values() if task.name not in self.lost]
        self.lost |= set(names)
        self.running, self.pool = {}, new_pool(self.own.cores)


def without_known(task: Task, known: set[str]) -> Task | None:
    """The task without what is known, or asked for before; what is left of it is known from now on."""
    if task.function is not bench_voc.judge_class:
        return task
    items = [item for item in task.inputs[0] if bench_voc.key_of(item) not in known]
    known |= {bench_voc.key_of(item) for item in items}
    return task._replace(inputs=(items,)) if items else None


def new_pool(n: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(n, multiprocessing.get_context("spawn"), initializer=os.nice, initargs=(LAST,))


def end_task(future: Future[list[dict[str, Any]]], task: Task, began: float, arguments: Namespace) -> None:
    """File what a task found; one that failed does not cost the others."""
    error = future.exception()
    if isinstance(error, BrokenProcessPool):
        raise error
    if error is not None:
        text = "".join(traceback.format_exception(error))
        tell(arguments, f"FAILED {task.name}: {text}")
        return
    for line in future.result():
        bench_voc.note(arguments, line)
    tell(arguments, f"{task.name}: {time.time() - began:.0f} s")


def tell(arguments: Namespace, text: str) -> None:
    with (arguments.work / "run.log").open("a") as log:
        log.write(f"{time.strftime('%H:%M:%S')} {text}\n")


if __name__ == "__main__":
    main()
