"""Compiled inner loops of the dual ascent: free functions on flat arrays, called for pieces of their range by threads.

Shares are entries e of a sparse table: positive p owns the entries start[p] : start[p + 1], entry e gives it
`amount[e]` of the negative in row `row[e]`. `rank[row, j]` is the place of that negative under exemplar j and
`reach[p, j]` how many negatives j accepts when it accepts p, 0 where it may not. So the negative belongs to B_j(p) iff
rank < reach, which is a comparison of two contiguous rows: the innermost loops run over all exemplars at once.
"""

from __future__ import annotations

import numpy as np

from eesvm._support.compile import inner, kernel
from eesvm._support.sorting import stable_order

_SPARSE = 8  # the load is summed over the exemplars in use where they are fewer than 1 / this of all
_LEAST_EXCESS = 1e-3  # of a choice: a need that is worth an entry
_N_BINS = 256  # of needs, between 0 and 1, to find the neediest without sorting


@kernel(fastmath=True)
def positives_reply(first, last, rank, reach, start, row, amount, fee, choice, regret, mean_choice, load, weight):
    """Positives first..last shift their choice towards exemplars that are cheap in their own shares.

    Predictive regret matching+: regrets against the present choice are added up and cut at zero, the new choice is in
    proportion to them plus a guess that the last costs come again. The last column of `choice` is to be left out at
    `fee[p]` (negative: not allowed). Then `load[e]` is the part of the choice that needs the negative of entry e.
    """
    n_exemplars = reach.shape[1]
    cost = np.empty(n_exemplars, dtype=np.float32)
    used = np.empty(n_exemplars, dtype=np.int64)
    for p in range(first, last):
        if start[p] == start[p + 1]:
            continue
        limits, chosen, regrets = reach[p], choice[p], regret[p]
        cost[:] = 0
        for e in range(start[p], start[p + 1]):
            part = amount[e]
            if part > 0:
                places = rank[row[e]]
                for j in range(n_exemplars):
                    cost[j] += part if places[j] < limits[j] else np.float32(0)
        paid = np.float32(0)
        for j in range(n_exemplars):
            paid += chosen[j] * cost[j]  # the choice is 0 where the pair is not allowed
        may_leave = fee[p] >= 0
        if may_leave:
            paid += chosen[n_exemplars] * fee[p]
        total = np.float32(0)
        cheapest, least = -1, np.float32(3e38)
        for j in range(n_exemplars):
            if limits[j] > 0:
                advantage = paid - cost[j]
                regrets[j] = max(regrets[j] + advantage, np.float32(0))
                chosen[j] = max(regrets[j] + advantage, np.float32(0))
                total += chosen[j]
                if cost[j] < least:
                    cheapest, least = j, cost[j]
        if may_leave:
            advantage = paid - fee[p]
            regrets[n_exemplars] = max(regrets[n_exemplars] + advantage, np.float32(0))
            chosen[n_exemplars] = max(regrets[n_exemplars] + advantage, np.float32(0))
            total += chosen[n_exemplars]
            if fee[p] < least:
                cheapest = n_exemplars
        if total > 0:
            for j in range(n_exemplars + 1):
                chosen[j] /= total
        elif cheapest >= 0:
            chosen[:] = 0
            chosen[cheapest] = 1
        mean = mean_choice[p]
        for j in range(n_exemplars + 1):
            mean[j] += weight * (chosen[j] - mean[j])
        _loads(p, rank, limits, start, row, chosen, used, load)


@inner(fastmath=True)
def _loads(p, rank, limits, start, row, chosen, used, load):
    """load[e] = the part of p's choice that needs the negative of its entry e."""
    n_exemplars = len(limits)
    n_used = 0
    for j in range(n_exemplars):
        if chosen[j] > 0:
            used[n_used] = j
            n_used += 1
    for e in range(start[p], start[p + 1]):
        places = rank[row[e]]
        part = np.float32(0)
        if n_used * _SPARSE < n_exemplars:
            for u in range(n_used):
                j = used[u]
                if places[j] < limits[j]:
                    part += chosen[j]
        else:
            for j in range(n_exemplars):
                part += chosen[j] if places[j] < limits[j] else np.float32(0)
        load[e] = part


@kernel(fastmath=True)
def loads_of_choice(first, last, rank, reach, start, row, choice, load):
    """`load` of any choice, without a change to it."""
    used = np.empty(reach.shape[1], dtype=np.int64)
    for p in range(first, last):
        _loads(p, rank, reach[p], start, row, choice[p], used, load)


@kernel(fastmath=True)
def negatives_reply(first, last, entry_start, entry, price, amount, regret, load, mean_amount, weight):
    """Negatives first..last give their price to those positives whose choice needs them most.

    `entry[entry_start[n] : entry_start[n + 1]]` are the entries of negative n. Predictive regret matching+ as above.
    """
    for n in range(first, last):
        begin, end = entry_start[n], entry_start[n + 1]
        if begin == end or price[n] <= 0:
            continue
        gained = np.float32(0)
        for k in range(begin, end):
            gained += amount[entry[k]] * load[entry[k]]
        gained /= price[n]
        total = np.float32(0)
        for k in range(begin, end):
            e = entry[k]
            advantage = load[e] - gained
            regret[e] = max(regret[e] + advantage, np.float32(0))
            amount[e] = max(regret[e] + advantage, np.float32(0))
            total += amount[e]
        for k in range(begin, end):
            e = entry[k]
            amount[e] = amount[e] / total * price[n] if total > 0 else price[n] / np.float32(end - begin)
            mean_amount[e] += weight * (amount[e] - mean_amount[e])


@kernel()
def exact_costs(first, last, rank, reach, start, row, quanta, costs):
    """costs[p, j] = what exemplar j costs positive p in its own shares, in whole quanta.

    Quanta are whole numbers held as float64 whose sums stay below 2^53, so nothing is rounded whatever the order.
    """
    for p in range(first, last):
        limits, cost = reach[p], costs[p]
        cost[:] = 0
        for e in range(start[p], start[p + 1]):
            part = quanta[e]
            if part > 0:
                places = rank[row[e]]
                for j in range(len(cost)):
                    cost[j] += part if places[j] < limits[j] else 0.0


@kernel()
def exact_values(first, last, rank, reach, start, row, quanta, value, cheapest):
    """value[p] = p's cheapest live exemplar in its own shares, in whole quanta; inf where there is none."""
    costs = np.empty((1, reach.shape[1]))
    for p in range(first, last):
        exact_costs(0, 1, rank, reach[p : p + 1], start[p : p + 2], row, quanta, costs)
        value[p], cheapest[p] = np.inf, -1
        for j in range(reach.shape[1]):
            if reach[p, j] > 0 and costs[0, j] < value[p]:
                value[p], cheapest[p] = costs[0, j], j


@kernel()
def whole_quanta(entry_start, entry, price_quanta, mean_amount, quanta):
    """Round shares down to whole quanta that add up to no more than the price of each negative."""
    for n in range(len(price_quanta)):
        begin, end = entry_start[n], entry_start[n + 1]
        total = 0.0
        for k in range(begin, end):
            total += mean_amount[entry[k]]
        left = price_quanta[n]
        largest = -1
        for k in range(begin, end):
            e = entry[k]
            part = 0.0
            if total > 0:
                part = np.floor(mean_amount[e] / total * price_quanta[n])
            part = min(max(part, 0.0), left)
            left -= part
            quanta[e] = part
            if largest < 0 or mean_amount[e] > mean_amount[largest]:
                largest = e
        if largest >= 0:
            quanta[largest] += left


@kernel()
def first_entries(order, row_of, reach, n_exemplars_each, slack, most, fill):
    """Rows that the cheapest exemplars of each positive accept: (start, row), at most `most` a positive.

    With `fill` False only `start` is right, so that the caller knows how much room the second call needs.
    """
    n_positives, n_exemplars = reach.shape
    start = np.zeros(n_positives + 1, dtype=np.int64)
    row = np.empty(fill, dtype=np.int32)
    seen = np.full(len(row_of), -1, dtype=np.int32)
    places = np.empty(n_exemplars, dtype=np.int64)
    for p in range(n_positives):
        n_places, n_entries = 0, 0
        for j in range(n_exemplars):
            if reach[p, j] > 0:
                places[n_places] = j
                n_places += 1
        alive = places[:n_places]
        by_reach = alive[stable_order(reach[p][alive])]
        for rank_of_exemplar in range(min(n_exemplars_each, n_places)):
            j = by_reach[rank_of_exemplar]
            length = np.int64(reach[p, j])
            if rank_of_exemplar > 0 and length > slack * reach[p, by_reach[0]]:
                break
            step = max(1, -(-length // most))  # of a long prefix only some
            for k in range(0, length, step):
                n = row_of[order[j, k]]
                if n >= 0 and seen[n] != p and n_entries < most:
                    seen[n] = p
                    if fill:
                        row[start[p] + n_entries] = n
                    n_entries += 1
        start[p + 1] = start[p] + n_entries
    return start, row


@kernel()
def main_choice(choice, reach, least, most_walk, main):
    """The larger parts of each positive's choice, made up to one again.

    Parts of `least` or more count, or of half the largest where the choice is so even that this is less: the largest
    first, as long as their reaches add up to no more than `most_walk`.
    """
    n_exemplars = reach.shape[1]
    for p in range(len(choice)):
        parts = choice[p]
        bar = min(least, parts[:n_exemplars].max() / 2)
        candidates = np.flatnonzero((parts[:n_exemplars] >= bar) & (parts[:n_exemplars] > 0))
        candidates = candidates[stable_order(-parts[candidates])]
        walked, total = np.int64(0), np.float32(0)
        for j in candidates:
            walked += np.int64(reach[p, j])
            if walked > most_walk and total > 0:
                break
            main[p, j] = parts[j]
            total += parts[j]
        if total > 0:
            main[p] /= total


@kernel()
def wanted_entries(first, last, order, row_of, reach, choice, held, start, row, begin, found, need, n_found):
    """Entries that are absent although the positive needs the negative more than anybody who has a share of it.

    The neediest of them, as many as there is room for, go to found[begin[p] : begin[p + 1]], with the part of the
    positive's choice by which each exceeds the largest `held` need, and their number to n_found[p].
    """
    n_rows = len(held)
    part = np.zeros(n_rows, dtype=np.float32)
    touched = np.empty(n_rows, dtype=np.int32)
    for p in range(first, last):
        n_touched = _add_up(p, order, row_of, reach, choice, part, touched)
        for e in range(start[p], start[p + 1]):
            part[row[e]] = 0
        histogram = np.zeros(_N_BINS + 1, dtype=np.int64)
        for k in range(n_touched):
            n = touched[k]
            over = part[n] - held[n]
            if over > _LEAST_EXCESS:
                histogram[min(_N_BINS, int(over * _N_BINS))] += 1
        room = begin[p + 1] - begin[p]
        lowest, n_above = _N_BINS, histogram[_N_BINS]
        while lowest > 0 and n_above + histogram[lowest - 1] <= room:
            lowest -= 1
            n_above += histogram[lowest]
        if n_above == 0 and lowest > 0:  # needs so alike that one bin has more of them than there is room for: some
            lowest -= 1
        n_taken = 0
        for k in range(n_touched):
            n = touched[k]
            over = part[n] - held[n]
            part[n] = 0
            if over > _LEAST_EXCESS and n_taken < room and min(_N_BINS, int(over * _N_BINS)) >= lowest:
                found[begin[p] + n_taken], need[begin[p] + n_taken] = n, over
                n_taken += 1
        n_found[p] = n_taken


@kernel()
def neediest_entries(begin, room, found, need, n_found, eagerness, most_needed):
    """Of the wanted entries those within `eagerness` of the largest need of their negative, `room[p]` at most."""
    for p in range(len(n_found)):
        for k in range(begin[p], begin[p] + n_found[p]):
            most_needed[found[k]] = max(most_needed[found[k]], need[k])
    for p in range(len(n_found)):
        n_wanted = 0
        for k in range(begin[p], begin[p] + n_found[p]):
            if need[k] >= (1 - eagerness) * most_needed[found[k]]:
                found[begin[p] + n_wanted], need[begin[p] + n_wanted] = found[k], need[k]
                n_wanted += 1
        if n_wanted > room[p]:
            needs = need[begin[p] : begin[p] + n_wanted]
            bar = np.sort(needs)[n_wanted - room[p]]
            n_taken = 0
            for k in range(n_wanted):
                if needs[k] >= bar and n_taken < room[p]:
                    found[begin[p] + n_taken] = found[begin[p] + k]
                    n_taken += 1
            n_wanted = n_taken
        n_found[p] = n_wanted


@inner()
def _add_up(p, order, row_of, reach, choice, part, touched):
    """part[n] += p's choice of the exemplars that need n; returns how many rows were touched."""
    n_touched = 0
    for j in range(reach.shape[1]):
        share = choice[p, j]
        if share > 0 and reach[p, j] > 0:
            for k in range(reach[p, j]):
                n = row_of[order[j, k]]
                if n >= 0:
                    if part[n] == 0:
                        touched[n_touched] = n
                        n_touched += 1
                    part[n] += share
    return n_touched


@kernel()
def merge_entries(start, kept, begin, n_found, found, row, amount, regret):
    """The entries with `kept` set, followed per positive by the found ones: (start, row, amount, regret)."""
    n_positives = len(start) - 1
    new_start = np.zeros(n_positives + 1, dtype=np.int64)
    for p in range(n_positives):
        n = n_found[p]
        for e in range(start[p], start[p + 1]):
            n += kept[e]
        new_start[p + 1] = new_start[p] + n
    size = new_start[n_positives]
    new_row = np.empty(size, dtype=np.int32)
    new_amount, new_regret = np.zeros(size, dtype=np.float32), np.zeros(size, dtype=np.float32)
    for p in range(n_positives):
        at = new_start[p]
        for e in range(start[p], start[p + 1]):
            if kept[e]:
                new_row[at], new_amount[at], new_regret[at] = row[e], amount[e], regret[e]
                at += 1
        for k in range(n_found[p]):
            new_row[at] = found[begin[p] + k]
            at += 1
    return new_start, new_row, new_amount, new_regret


@kernel()
def by_negative(row, n_rows):
    """Entries sorted by their row: (entry_start, entry)."""
    entry_start = np.zeros(n_rows + 1, dtype=np.int64)
    for e in range(len(row)):
        entry_start[row[e] + 1] += 1
    for n in range(n_rows):
        entry_start[n + 1] += entry_start[n]
    entry = np.empty(len(row), dtype=np.int32)
    at = entry_start[:-1].copy()
    for e in range(len(row)):
        entry[at[row[e]]] = e
        at[row[e]] += 1
    return entry_start, entry


@kernel()
def undominated(reach, sequence):
    """Positives that no other one makes needless, in the given sequence (of decreasing total reach).

    q makes p needless where p's reach is at most q's under every exemplar that may cover q: whoever covers q covers p.
    A reach of 0 stands for "may not", so it counts as infinite.
    """
    n_exemplars = reach.shape[1]
    kept = np.empty(len(sequence), dtype=np.int64)
    n_kept = 0
    last_failed = 0
    for s in range(len(sequence)):
        p = sequence[s]
        is_needless = False
        for k in range(n_kept):
            q = kept[k]
            j = last_failed
            if reach[q, j] > 0 and (reach[p, j] == 0 or reach[p, j] > reach[q, j]):
                continue
            dominates = True
            for j in range(n_exemplars):
                if reach[q, j] > 0 and (reach[p, j] == 0 or reach[p, j] > reach[q, j]):
                    dominates = False
                    last_failed = j
                    break
            if dominates:
                is_needless = True
                break
        if not is_needless:
            kept[n_kept] = p
            n_kept += 1
    return kept[:n_kept].copy()
