"""Compiled walk through a proof whose leaves each belong to one positive; `owners` says what it counts.

It shares nothing with the search, and gives what the walk of `owners` in numpy gives.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from eesvm._support.compile import inner, kernel

# The tree: split[n] is the row of the bits and scores that it opens, owner[n] the row of an owned leaf, else -1. (M,)
Tree = namedtuple("Tree", "exemplar score split open_child shut_child owner")
# Of the owners: bits (O, E, W), scores (O, E), who may cover them (O, E), whether somebody does at the root (O,).
Owners = namedtuple("Owners", "bits scores may is_covered")
# Pairs of an owner and an exemplar that are found too dear, in the order of finding: (O, E), (O * E,), how many (1,).
Dear = namedtuple("Dear", "is_in pair n")

_STRIDE = 64  # words counted between two looks at the limit


@kernel()
def measure(tree: Any, is_wanted: Any) -> Any:
    """Mark all nodes that lead to wanted ones: (longest way, most splits opened on it)."""
    n_nodes = len(is_wanted)
    depth, opened = np.zeros(n_nodes, dtype=np.int32), np.zeros(n_nodes, dtype=np.int32)
    for n in range(n_nodes):  # children come after their parents
        if tree.exemplar[n] >= 0:
            a, b = tree.open_child[n], tree.shut_child[n]
            depth[a] = depth[b] = depth[n] + 1
            opened[a], opened[b] = opened[n] + 1, opened[n]
    for n in range(n_nodes - 1, -1, -1):
        if tree.exemplar[n] >= 0 and (is_wanted[tree.open_child[n]] or is_wanted[tree.shut_child[n]]):
            is_wanted[n] = True
    return depth.max(), opened.max()


@inner()
def _ones(word: Any) -> Any:
    """How many bits of a uint64 are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@inner()
def _n_unpaid(bits: Any, paid: Any) -> Any:
    n: Any = np.int64(0)
    for w in range(len(bits)):
        n += np.int64(_ones(bits[w] & ~paid[w]))
    return n


@inner()
def _least_cost(owners: Any, o: Any, opened: Any, shut: Any, paid: Any, dear: Any, room: Any) -> Any:
    """The least number of negatives that covering owner o adds, `room` where it is no less; notes who costs that."""
    if owners.is_covered[o]:
        return 0
    least = room
    for j in range(len(opened)):
        if owners.may[o, j] and owners.scores[o, j] >= opened[j]:
            return 0
    for j in range(len(opened)):
        if not owners.may[o, j] or dear.is_in[o, j] or owners.scores[o, j] <= shut[j]:
            continue
        n, start = 0, 0
        while start < len(paid) and n < room:
            end = min(start + _STRIDE, len(paid))
            n += _n_unpaid(owners.bits[o, j, start:end], paid[start:end])
            start = end
        if n >= room:
            dear.is_in[o, j] = True
            dear.pair[dear.n[0]] = o * len(opened) + j
            dear.n[0] += 1
        least = min(least, n)
    return least


@kernel()
def least_owned(
    tree: Any, owners: Any, split_bits: Any, is_wanted: Any, opened: Any, shut: Any, depths: Any, limit: Any
) -> Any:
    """The least bound of the wanted leaves in negatives, or `limit` if that is less.

    `opened`, `shut` (E,) are those of the root; `depths` what `measure` found. Shut before open: who is found too dear
    for an owner is so wherever more is paid, that is, in all that is opened afterwards from there, and is forgotten on
    the way back.
    """
    n_exemplars, n_words = len(opened), split_bits.shape[1]
    paid = np.zeros((depths[1] + 1, n_words), dtype=np.uint64)
    n_paid = np.zeros(depths[1] + 1, dtype=np.int64)
    is_in, pair = np.zeros(owners.may.shape, dtype=np.bool_), np.empty(owners.may.size, dtype=np.int64)
    dear = Dear(is_in, pair, np.zeros(1, dtype=np.int64))
    n_dear = np.zeros(depths[1] + 1, dtype=np.int64)  # before a level was entered
    node, stage = np.zeros(depths[0] + 1, dtype=np.int64), np.zeros(depths[0] + 1, dtype=np.int8)
    before = np.zeros(depths[0] + 1)
    depth, level, least = 0, 0, limit
    while depth >= 0:
        n = node[depth]
        j = tree.exemplar[n]
        if stage[depth] == 0 and (j < 0 or not is_wanted[n] or n_paid[level] >= least):
            if j < 0 and is_wanted[n] and n_paid[level] < least:
                room = least - n_paid[level]
                cost = _least_cost(owners, tree.owner[n], opened, shut, paid[level], dear, room)
                least = n_paid[level] + cost
            depth -= 1
            continue
        stage[depth] += 1
        if stage[depth] == 1:
            before[depth] = shut[j]
            shut[j] = max(shut[j], tree.score[n])
            node[depth + 1], stage[depth + 1] = tree.shut_child[n], 0
            depth += 1
        elif stage[depth] == 2:
            shut[j] = before[depth]
            before[depth] = opened[j]
            opened[j] = min(opened[j], tree.score[n])
            bits = split_bits[tree.split[n]]
            n_paid[level + 1] = n_paid[level]
            for w in range(n_words):
                paid[level + 1, w] = paid[level, w] | bits[w]
            n_paid[level + 1] += _n_unpaid(bits, paid[level])
            level += 1
            n_dear[level] = dear.n[0]
            node[depth + 1], stage[depth + 1] = tree.open_child[n], 0
            depth += 1
        else:
            opened[j] = before[depth]
            while dear.n[0] > n_dear[level]:
                dear.n[0] -= 1
                pair_number = dear.pair[dear.n[0]]
                dear.is_in[pair_number // n_exemplars, pair_number % n_exemplars] = False
            level -= 1
            depth -= 1
    return least
