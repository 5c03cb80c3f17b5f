"""Entries: which positives have a share of a negative, and how much of it.

In: pairs and lanes. Out: for each free negative, one that is not paid at a node, its entries: whose share it is, how
much, and bits of which of the owner's lanes need the negative. Entries that are of no use become spare and are dropped
in time; those that are missing are looked for by what the lanes that are chosen need.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from eesvm._support.bits import first_one, has, n_ones
from eesvm._support.compile import inner, kernel

# Negative i has the entries start[i] : start[i + 1], of which the first n_active[i] take part in the game; the others
# are spare: they were needed, or nearly, and may be again. `need` is the part of the owner's choice that needs the
# negative. (F,) (F + 1,) (F,) (Z,) (Z, L / 64) (Z,) (Z,) (Z,)
Entries = namedtuple("Entries", "negative start n_active owner bits share regret need")

_ONE = np.uint64(1)
_WORTH_ENTRY = np.float32(0.02)  # by how much a need exceeds all others, of a choice, and a part that counts for it
_WORTH_SHARE = np.float32(1e-3)  # less, without a regret, is no share
_SPARES = 3  # entries that are kept for each negative besides those that take part
WANTED = 2  # new entries of a negative at a time, at most


@kernel()
def no_entries(free: Any, n_words: Any) -> Any:
    """Entries of the negatives that are free: none."""
    n: Any = 0
    for w in range(len(free)):
        n += np.int64(n_ones(free[w]))  # type: ignore[call-arg]
    entries = _room(n, 0, n_words)
    n = 0
    for w in range(len(free)):
        word = free[w]
        while word != 0:
            entries.negative[n] = 64 * w + first_one(word)
            word &= word - _ONE
            n += 1
    entries.start[:] = 0
    return entries


@kernel()
def inherit(
    pairs: Any, entries: Any, free: Any, is_covered: Any, lanes: Any, new_lanes: Any, is_same: Any, keeps: Any
) -> Any:
    """The entries of a node above that still matter: of negatives that are free, of positives that have lanes.

    Regrets are worth `keeps` of what they were. Bits are put in the order of the new lanes unless these are the same.
    """
    n_free, n = 0, 0
    for i in range(len(entries.negative)):
        m = entries.negative[i]
        if has(free, m):
            n_free += 1
            for e in range(entries.start[i], entries.start[i + 1]):
                q = entries.owner[e]
                n += not is_covered[q] and new_lanes.n[q] > 0
    new = _room(n_free, n, new_lanes.exemplar.shape[1] // 64)
    n_free, n = 0, 0
    for i in range(len(entries.negative)):
        m = entries.negative[i]
        if not has(free, m):
            continue
        new.negative[n_free], new.start[n_free] = m, n
        total, n_active = np.float32(0), 0
        for e in range(entries.start[i], entries.start[i + 1]):
            q = entries.owner[e]
            if is_covered[q] or new_lanes.n[q] == 0:
                continue
            _copy_entry(new, n, entries, e)
            new.regret[n] *= keeps
            if e < entries.start[i] + entries.n_active[i]:
                total += entries.share[e]
                n_active += 1
            if is_same:
                for w in range(entries.bits.shape[1]):
                    new.bits[n, w] = entries.bits[e, w]
            else:
                for lane in range(new_lanes.n[q]):
                    j = new_lanes.exemplar[q, lane]
                    old = lanes.place[q, j]
                    bit = has(entries.bits[e], old) if old >= 0 else has(pairs.bits[pairs.row[q, j]], m)
                    new.bits[n, lane >> 6] |= bit << np.uint64(lane & 63)
            n += 1
        for e in range(new.start[n_free], new.start[n_free] + n_active):
            new.share[e] = new.share[e] / total if total > 0 else np.float32(1) / np.float32(n_active)
        new.n_active[n_free] = n_active
        n_free += 1
    new.start[n_free] = n
    return new


@inner(fastmath=True)
def part_in_need(bits: Any, chosen: Any) -> Any:
    """The part of a choice that needs a negative."""
    part = np.float32(0)
    for w in range(len(bits)):
        word = bits[w]
        for b in range(64):
            part += chosen[64 * w + b] if (word >> np.uint64(b)) & _ONE else np.float32(0)
    return part


@inner(fastmath=True)
def review(entries: Any, choice: Any, held: Any) -> None:
    """Entries without share and regret become spare, spare ones take part that are needed more than what has shares.

    held[m] is the most that an owner of a share needs negative m.
    """
    for i in range(len(entries.negative)):
        first, last, n = entries.start[i], entries.start[i + 1], entries.n_active[i]
        for e in range(first, last):
            entries.need[e] = part_in_need(entries.bits[e], choice[entries.owner[e]])
        e, given = first, np.float32(0)
        while e < first + n:
            if entries.regret[e] <= 0 and entries.share[e] <= _WORTH_SHARE and n > 1:
                n -= 1
                entries.share[e] = 0
                _swap(entries, e, first + n)
            else:
                given += entries.share[e] * entries.need[e]
                e += 1
        for e in range(first + n, last):
            if n == 0 or entries.need[e] > given + _WORTH_SHARE:
                entries.regret[e], entries.share[e] = 0, np.float32(1 if n == 0 else 0)
                _swap(entries, e, first + n)
                n += 1
        most = np.float32(0)
        for e in range(first, first + n):
            most = max(most, entries.need[e])
        entries.n_active[i], held[entries.negative[i]] = n, most


@inner()
def _chosen(pairs: Any, lanes: Any, is_covered: Any, choice: Any) -> Any:
    """Lanes that are worth an entry: those of positive q from begin[q] to begin[q + 1], the rows of their pairs, and
    what part of the choice they are."""
    begin, n = np.zeros(len(is_covered) + 1, dtype=np.int64), 0
    row, part = np.empty(choice.size, dtype=np.int64), np.empty(choice.size, dtype=np.float32)
    for q in range(len(is_covered)):
        for lane in range(0 if is_covered[q] else lanes.n[q]):
            if choice[q, lane] >= _WORTH_ENTRY:
                row[n], part[n] = pairs.row[q, lanes.exemplar[q, lane]], choice[q, lane]
                n += 1
        begin[q + 1] = n
    return begin, row, part


@inner(fastmath=True)
def look_for_wanted(
    pairs: Any, lanes: Any, free: Any, is_covered: Any, choice: Any, held: Any, by: Any, who: Any
) -> None:
    """who[m] (2,): positives without a share of m that need it most, and more than those who have one; by[m] how much.

    64 negatives at a time, and all positives, so that what is added up stays at hand.
    """
    begin, row, part_of = _chosen(pairs, lanes, is_covered, choice)
    need = np.empty(64, dtype=np.float32)
    for w in range(len(free)):
        if free[w] == 0:
            continue
        start = 64 * w
        for q in range(len(is_covered)):
            if begin[q] == begin[q + 1]:
                continue
            need[:] = 0
            seen = np.uint64(0)
            for k in range(begin[q], begin[q + 1]):
                word, part = pairs.bits[row[k], w] & free[w], part_of[k]
                seen |= word
                for b in range(64):
                    need[b] += part if (word >> np.uint64(b)) & _ONE else np.float32(0)
            if seen == 0:
                continue
            n = 0
            for b in range(64):
                n += need[b] > held[start + b] + _WORTH_ENTRY
            if n == 0:
                continue
            for b in range(64):
                m, part = start + b, need[b]
                if part <= held[m] + _WORTH_ENTRY:
                    continue
                if part > by[m, 0]:
                    by[m, 1], who[m, 1] = by[m, 0], who[m, 0]
                    by[m, 0], who[m, 0] = part, q
                elif part > by[m, 1]:
                    by[m, 1], who[m, 1] = part, q


@inner()
def with_wanted(pairs: Any, lanes: Any, entries: Any, by: Any, who: Any) -> Any:
    """Entries with those that are wanted, and of spare ones those that are needed most."""
    n, n_words = 0, entries.bits.shape[1]
    for i in range(len(entries.negative)):
        n_here = entries.start[i + 1] - entries.start[i]
        n += entries.n_active[i] + min(_SPARES, n_here - entries.n_active[i])
        for t in range(WANTED):
            n += who[entries.negative[i], t] >= 0
    new = _room(len(entries.negative), n, n_words)
    begin = np.zeros(len(lanes.n) + 1, dtype=np.int64)  # of the new entries of a positive
    fresh, negative = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int32)
    n, n_fresh = 0, 0
    for i in range(len(entries.negative)):
        m, first, last = entries.negative[i], entries.start[i], entries.start[i + 1]
        new.negative[i], new.start[i], new.n_active[i] = m, n, entries.n_active[i]
        for e in range(first, first + entries.n_active[i]):
            _copy_entry(new, n, entries, e)
            for w in range(n_words):
                new.bits[n, w] = entries.bits[e, w]
            n += 1
        for t in range(WANTED):
            q, is_there = who[m, t], False
            if q < 0:
                continue
            for e in range(first, last):
                is_there |= entries.owner[e] == q
            if is_there:
                continue
            new.owner[n], new.regret[n], new.need[n] = q, 0, by[m, t]
            new.share[n] = np.float32(0 if new.n_active[i] > 0 else 1)
            new.n_active[i] += 1
            begin[q + 1] += 1
            fresh[n_fresh], negative[n_fresh] = n, m
            n, n_fresh = n + 1, n_fresh + 1
        for at in range(first + entries.n_active[i], min(last, first + entries.n_active[i] + _SPARES)):
            for e in range(at + 1, last):
                if entries.need[e] > entries.need[at]:
                    _swap(entries, e, at)
            _copy_entry(new, n, entries, at)
            for w in range(n_words):
                new.bits[n, w] = entries.bits[at, w]
            n += 1
    new.start[len(entries.negative)] = n
    _fill_bits(pairs, lanes, new, fresh[:n_fresh], negative, begin)
    return Entries(
        new.negative,
        new.start,
        new.n_active,
        new.owner[:n],
        new.bits[:n],
        new.share[:n],
        new.regret[:n],
        new.need[:n],
    )


@inner()
def _room(n_negatives: Any, n: Any, n_words: Any) -> Any:
    return Entries(
        np.empty(n_negatives, dtype=np.int32),
        np.empty(n_negatives + 1, dtype=np.int64),
        np.zeros(n_negatives, dtype=np.int32),
        np.empty(n, dtype=np.int32),
        np.zeros((n, n_words), dtype=np.uint64),
        np.empty(n, dtype=np.float32),
        np.empty(n, dtype=np.float32),
        np.empty(n, dtype=np.float32),
    )


@inner()
def _copy_entry(to: Any, n: Any, entries: Any, e: Any) -> None:
    """All but its bits."""
    to.owner[n], to.share[n], to.regret[n], to.need[n] = (
        entries.owner[e],
        entries.share[e],
        entries.regret[e],
        entries.need[e],
    )


@inner()
def _swap(entries: Any, e: Any, f: Any) -> None:
    if e == f:
        return
    entries.owner[e], entries.owner[f] = entries.owner[f], entries.owner[e]
    entries.share[e], entries.share[f] = entries.share[f], entries.share[e]
    entries.regret[e], entries.regret[f] = entries.regret[f], entries.regret[e]
    entries.need[e], entries.need[f] = entries.need[f], entries.need[e]
    for w in range(entries.bits.shape[1]):
        entries.bits[e, w], entries.bits[f, w] = entries.bits[f, w], entries.bits[e, w]


@inner()
def _fill_bits(pairs: Any, lanes: Any, entries: Any, fresh: Any, negative: Any, begin: Any) -> None:
    """The bits of fresh entries, positive by positive: begin[q + 1] is how many of them q has."""
    for q in range(len(lanes.n)):
        begin[q + 1] += begin[q]
    at, by_owner = begin.copy(), np.empty(len(fresh), dtype=np.int64)
    for t in range(len(fresh)):
        q = entries.owner[fresh[t]]
        by_owner[at[q]] = t
        at[q] += 1
    for q in range(len(lanes.n)):
        if begin[q] == begin[q + 1]:
            continue
        for lane in range(lanes.n[q]):
            bits = pairs.bits[pairs.row[q, lanes.exemplar[q, lane]]]
            for u in range(begin[q], begin[q + 1]):
                t = by_owner[u]
                bit = has(bits, negative[t])
                entries.bits[fresh[t], lane >> 6] |= bit << np.uint64(lane & 63)
