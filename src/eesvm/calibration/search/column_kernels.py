"""The compiled loops of the column bound: what is in play in a box, and multipliers that are improved step by step.

In: ranks, a box, and arrays that are worked on in place. Out: numbers. `columns` says what they mean; docs/maths.md,
section 7, proves the bound. A *row* is the place of a positive or negative among those in play.

The story of each exemplar is a list of events: its negatives in play by decreasing score, `row >= 0`, and between them
the positives that it accepts from there on, `~row`. Read from the front, it gives every level in turn.
"""

# njit erases the signatures; shapes and dtypes stand in the docstrings.
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import inner, kernel
from eesvm._support.sorting import copy_into

_DEFLECTION = 0.7  # of the last direction that goes into the next
_AT_PRICE = 1 - 1e-7  # of the price: from there on a positive counts as worth leaving out
_BISECTIONS = 40


class Play(NamedTuple):
    """What is in play in a box: neither decided by its lowest levels nor out of reach of its highest."""

    positives: NDArray[np.int32]  # (P',) ascending
    units: NDArray[np.float64]  # (P',) their weights towards the recall floor
    dead: NDArray[np.int32]  # positives that nobody covers in this box
    negatives: NDArray[np.int32]  # (N',) of the ranked problem, ascending
    prices: NDArray[np.float64]  # (N',)
    event: NDArray[np.int32]  # (K,) the stories of all exemplars, one after the other
    start: NDArray[np.int64]  # (E + 1,) where each begins
    entry: NDArray[np.int64]  # the events of each negative
    entry_start: NDArray[np.int64]  # (N' + 1,)


@kernel()
def find_play(order, delta, units, prices, lowest, highest):
    """The `Play` of a box; levels up to `lowest` are accepted, pairs beyond `highest` are dead."""
    n_exemplars, n_negatives = len(order), len(prices)  # rows of the order may be cut at the last useful level
    is_paid = np.zeros(n_negatives, dtype=np.bool_)
    for j in range(n_exemplars):
        for k in range(lowest[j]):
            is_paid[order[j, k]] = True
    positives, dead, reach = _open_positives(delta, lowest, highest)
    count = np.zeros(n_negatives, dtype=np.int64)
    n_pairs = 0
    for j in range(n_exemplars):
        for k in range(lowest[j], reach[j]):
            if not is_paid[order[j, k]]:
                count[order[j, k]] += 1
        for p in positives:
            n_pairs += delta[p, j] <= highest[j]
    negatives = np.flatnonzero(count).astype(np.int32)
    row = np.full(n_negatives, -1, dtype=np.int32)
    entry_start = np.zeros(len(negatives) + 1, dtype=np.int64)
    for i in range(len(negatives)):
        row[negatives[i]] = i
        entry_start[i + 1] = entry_start[i] + count[negatives[i]]
    event = np.empty(entry_start[-1] + n_pairs, dtype=np.int32)
    start = np.zeros(n_exemplars + 1, dtype=np.int64)
    entry = np.empty(entry_start[-1], dtype=np.int64)
    filled = entry_start[:-1].copy()
    at = 0
    for j in range(n_exemplars):
        first, by_level = _by_level(delta, positives, j, reach[j], highest[j])
        for level in range(lowest[j] + 1, reach[j] + 1):
            n = order[j, level - 1]
            if not is_paid[n]:
                event[at] = row[n]
                entry[filled[row[n]]] = at
                filled[row[n]] += 1
                at += 1
            for k in range(first[level], first[level + 1]):
                event[at] = ~by_level[k]
                at += 1
        start[j + 1] = at
    return Play(positives, units[positives], dead, negatives, prices[negatives], event, start, entry, entry_start)


@inner()
def _open_positives(delta, lowest, highest):
    """(positives that are open, positives that are dead, (E,) the highest level that an open one needs)."""
    n_positives, n_exemplars = delta.shape
    positives, dead = np.empty(n_positives, dtype=np.int32), np.empty(n_positives, dtype=np.int32)
    reach = lowest.astype(np.int64)
    n_open = n_dead = 0
    for p in range(n_positives):
        is_covered = is_alive = False
        for j in range(n_exemplars):
            is_covered |= delta[p, j] <= lowest[j]
            is_alive |= delta[p, j] <= highest[j]
        if is_covered:
            continue
        if not is_alive:
            dead[n_dead] = p
            n_dead += 1
            continue
        positives[n_open] = p
        n_open += 1
        for j in range(n_exemplars):
            if delta[p, j] <= highest[j]:
                reach[j] = max(reach[j], delta[p, j])
    return positives[:n_open].copy(), dead[:n_dead].copy(), reach


@inner()
def _by_level(delta, positives, j, reach, highest):
    """Rows of the positives by their level under j; those of level l are first[l] to first[l + 1]."""
    first = np.zeros(reach + 2, dtype=np.int64)
    for p in positives:
        if delta[p, j] <= highest:
            first[delta[p, j] + 1] += 1
    for level in range(1, reach + 2):
        first[level] += first[level - 1]
    by_level, filled = np.empty(first[-1], dtype=np.int32), first.copy()
    for i in range(len(positives)):
        level = delta[positives[i], j]
        if level <= highest:
            by_level[filled[level]] = i
            filled[level] += 1
    return first, by_level


@inner()
def price_of_leaving_out(values, units, budget):
    """About the value per unit at which the budget runs out, if the most valuable are left out first."""
    high = total = 0.0
    for i in range(len(values)):
        high = max(high, values[i] / units[i])
        if values[i] > 0:
            total += units[i]
    if total <= budget:
        return 0.0
    low = 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        total = 0.0
        for i in range(len(values)):
            if values[i] > middle * units[i]:
                total += units[i]
        if total <= budget:
            high = middle
        else:
            low = middle
        if high - low <= 1e-9 * high:
            break
    return high


@kernel()
def cheapest_levels(play, values, shares, ends):
    """Sum over exemplars of the least of shares paid minus values won; `ends[j]` is the event before which it stops."""
    total = 0.0
    for j in range(len(play.start) - 1):
        balance = least = 0.0
        ends[j] = play.start[j]
        for k in range(play.start[j], play.start[j + 1]):
            row = play.event[k]
            if row >= 0:
                balance += shares[k]
            else:
                balance -= values[~row]
                if balance < least:
                    least = balance
                    ends[j] = k + 1
        total += least
    return total


@kernel()
def ascend(play, budget, least_price, values, shares, target, n_steps, patience, ends):
    """Improve `values` and `shares` in place by deflected subgradients; (bound, steps made).

    `ends` (n_steps, E) gets the levels that each step chose. A step aims at `target`, or at what seems within reach.
    Leaving out a unit costs `least_price` at least.
    """
    n_positives, n_events = len(values), len(shares)
    best, best_values, best_shares = -np.inf, values.copy(), shares.copy()
    gradient, value_move, share_move = np.empty(n_positives), np.zeros(n_positives), np.zeros(n_events)
    reach, n_stale, step = -1.0, 0, 0
    while step < n_steps:
        price = max(least_price, price_of_leaving_out(values, play.units, budget))
        bound = -price * budget + _take_values(play, values, price, budget, gradient)
        bound += cheapest_levels(play, values, shares, ends[step])
        n_stale = 0 if bound > best + 0.02 * max(reach, 0.0) else n_stale + 1
        if bound > best:
            best = bound
            copy_into(best_values, values)
            copy_into(best_shares, shares)
        step += 1
        if best >= target:
            break
        if reach < 0:
            reach = target - best
        if n_stale >= patience:
            reach, n_stale = reach / 2, 0
            copy_into(values, best_values)
            copy_into(shares, best_shares)
            value_move[:] = 0
            share_move[:] = 0
            if reach < 0.03 * (target - best):
                break
            continue
        size = _find_move(play, values, gradient, ends[step - 1], value_move, share_move)
        if size <= 1e-12:
            break
        length = (1 - _DEFLECTION) * (min(target, best + reach) - bound) / size
        for i in range(n_positives):
            values[i] = max(0.0, values[i] + length * value_move[i])
        _move_shares(play, shares, share_move, length)
    copy_into(values, best_values)
    copy_into(shares, best_shares)
    return best, step


@inner()
def _take_values(play, values, price, budget, gradient):
    """Cut `values` at the price; returns their sum and fills `gradient` without what the exemplars cover."""
    total = at_price = 0.0
    for i in range(len(values)):
        charge = price * play.units[i]
        values[i] = min(values[i], charge)
        total += values[i]
        if values[i] >= charge * _AT_PRICE:
            at_price += play.units[i]
    part_left_out = min(1.0, budget / at_price) if at_price > 0 else 0.0
    for i in range(len(values)):
        gradient[i] = 1 - part_left_out if values[i] >= price * play.units[i] * _AT_PRICE else 1.0
    return total


@inner()
def _find_move(play, values, gradient, ends, value_move, share_move):
    """Where to go: the gradient and part of where the last step went; returns the square of its length."""
    for j in range(len(ends)):
        for k in range(play.start[j], ends[j]):
            if play.event[k] < 0:
                gradient[~play.event[k]] -= 1
        for k in range(play.start[j], play.start[j + 1]):
            share_move[k] = _DEFLECTION * share_move[k] + (k < ends[j])
    size = 0.0
    for i in range(len(values)):
        change = 0.0 if values[i] <= 0 and gradient[i] < 0 else gradient[i]
        value_move[i] = _DEFLECTION * value_move[i] + change
        size += value_move[i] ** 2
    for i in range(len(play.negatives)):
        first, last = play.entry_start[i], play.entry_start[i + 1]
        mean = 0.0
        for e in range(first, last):
            mean += share_move[play.entry[e]]
        mean /= last - first
        for e in range(first, last):
            size += (share_move[play.entry[e]] - mean) ** 2
    return size


@inner()
def _move_shares(play, shares, share_move, length):
    """Go along `share_move`, then to the nearest shares that are not negative and add up to each price."""
    for i in range(len(play.negatives)):
        first, last = play.entry_start[i], play.entry_start[i + 1]
        n = last - first
        if n == 1:
            continue
        total = 0.0
        for e in range(first, last):
            k = play.entry[e]
            shares[k] += length * share_move[k]
            total += shares[k]
        excess = (total - play.prices[i]) / n
        for _ in range(n):  # those that would become negative drop out, and the others pay for them
            total, n_left = 0.0, 0
            for e in range(first, last):
                if shares[play.entry[e]] > excess:
                    total += shares[play.entry[e]]
                    n_left += 1
            if n_left == 0 or n_left >= n or (total - play.prices[i]) / n_left <= excess:
                break
            n, excess = n_left, (total - play.prices[i]) / n_left
        for e in range(first, last):
            shares[play.entry[e]] = max(0.0, shares[play.entry[e]] - excess)


@kernel()
def inherit(parent, parent_values, parent_shares, child, all_values, all_shares):
    """(values, shares) of `child` from those of a box around it; the last two are scratch, (P,) and (E, N)."""
    for i in range(len(parent.positives)):
        all_values[parent.positives[i]] = parent_values[i]
    for j in range(len(parent.start) - 1):
        for k in range(parent.start[j], parent.start[j + 1]):
            if parent.event[k] >= 0:
                all_shares[j, parent.negatives[parent.event[k]]] = parent_shares[k]
    values, shares = np.empty(len(child.positives)), np.zeros(len(child.event))
    for i in range(len(child.positives)):
        values[i] = all_values[child.positives[i]]
    for j in range(len(child.start) - 1):
        for k in range(child.start[j], child.start[j + 1]):
            if child.event[k] >= 0:
                shares[k] = all_shares[j, child.negatives[child.event[k]]]
    for i in range(len(child.negatives)):  # what belonged to exemplars that are out of play goes to the others
        first, last = child.entry_start[i], child.entry_start[i + 1]
        rest = child.prices[i]
        for e in range(first, last):
            rest -= shares[child.entry[e]]
        for e in range(first, last):
            shares[child.entry[e]] = max(0.0, shares[child.entry[e]] + rest / (last - first))
    return values, shares


@kernel()
def useful_levels(play, delta, values, shares, slack, lowest, first, last):
    """(E,) first and last level at which an exemplar falls short of its least by less than `slack`."""
    for j in range(len(play.start) - 1):
        balance = least = 0.0
        for k in range(play.start[j], play.start[j + 1]):
            row = play.event[k]
            balance += shares[k] if row >= 0 else -values[~row]
            least = min(least, balance)
        first[j] = lowest[j] if -least < slack else -1
        last[j] = lowest[j]
        balance = 0.0
        for k in range(play.start[j], play.start[j + 1]):
            row = play.event[k]
            balance += shares[k] if row >= 0 else -values[~row]
            if row < 0 and balance - least < slack:
                last[j] = delta[play.positives[~row], j]
                if first[j] < 0:
                    first[j] = last[j]
        if first[j] < 0:
            first[j] = lowest[j]


@kernel()
def undecided_level(play, delta, ends):
    """(exemplar, level) where the levels chosen in several steps, `ends` (S, E), differ most; -1 where all agree."""
    best, exemplar, level = 0.0, -1, -1
    n_steps = len(ends)
    for j in range(len(play.start) - 1):
        begin = play.start[j]
        paid = np.zeros(play.start[j + 1] - begin + 1)
        for k in range(begin, play.start[j + 1]):
            paid[k - begin + 1] = paid[k - begin] + (play.prices[play.event[k]] if play.event[k] >= 0 else 0.0)
        mean = spread = 0.0
        for s in range(n_steps):
            mean += paid[ends[s, j] - begin] / n_steps
        for s in range(n_steps):
            spread += abs(paid[ends[s, j] - begin] - mean) / n_steps
        spread += 1e-3 * paid[-1]
        if spread > best and len(paid) > 1:
            best, exemplar = spread, j
            for k in range(begin, play.start[j + 1]):
                if play.event[k] < 0:
                    level = delta[play.positives[~play.event[k]], j]
                    if paid[k - begin] > mean:
                        break
    return exemplar, level


@kernel()
def in_quanta(play, price_quanta, values, shares, scale):
    """Whole numbers of quanta, (values, shares), such that no exemplar ever falls short and no price is exceeded.

    A value that its exemplar can not pay is cut to what it can, in the order of the story.
    """
    whole_shares = np.zeros(len(shares), dtype=np.int64)
    for i in range(len(play.negatives)):
        rest = price_quanta[play.negatives[i]]
        for e in range(play.entry_start[i], play.entry_start[i + 1]):
            k = play.entry[e]
            whole_shares[k] = min(rest, np.int64(np.floor(shares[k] * scale)))
            rest -= whole_shares[k]
        whole_shares[play.entry[play.entry_start[i]]] += rest
    whole_values = np.floor(values * scale).astype(np.int64)
    for j in range(len(play.start) - 1):
        balance = np.int64(0)
        for k in range(play.start[j], play.start[j + 1]):
            row = play.event[k]
            if row >= 0:
                balance += whole_shares[k]
            else:
                whole_values[~row] = min(whole_values[~row], balance)
                balance -= whole_values[~row]
    return whole_values, whole_shares


@kernel()
def match(play, whole_values, whole_shares):
    """Who pays whom: (rows of positives, rows of negatives, quanta), each exemplar's after those of the one before.

    Every positive is paid its whole value by every exemplar, by the nearest negatives above it that have anything left.
    """
    size = 2 * len(play.event)
    positive, negative = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
    amount = np.empty(size, dtype=np.int64)
    stack, left = np.empty(len(play.negatives), dtype=np.int32), np.empty(len(play.negatives), dtype=np.int64)
    n = 0
    for j in range(len(play.start) - 1):
        height = 0
        for k in range(play.start[j], play.start[j + 1]):
            row = play.event[k]
            if row >= 0:
                stack[height] = row
                left[height] = whole_shares[k]
                height += 1
                continue
            missing = whole_values[~row]
            while missing > 0 and height > 0:
                paid = min(missing, left[height - 1])
                if paid > 0:
                    positive[n], negative[n], amount[n] = ~row, stack[height - 1], paid
                    n += 1
                missing -= paid
                left[height - 1] -= paid
                if left[height - 1] == 0:
                    height -= 1
    return positive[:n], negative[:n], amount[:n]


@kernel()
def add_up(positive, negative, amount, n_positives, n_negatives):
    """What each positive gets from each negative: (positives, (R + 1,) starts, negatives ascending, quanta)."""
    by_negative = _sorted_by(negative, np.arange(len(negative)), n_negatives)
    by_positive = _sorted_by(positive, by_negative, n_positives)
    rows, start = np.empty(n_positives, dtype=np.int64), np.zeros(n_positives + 1, dtype=np.int64)
    columns, quanta = np.empty(len(negative), dtype=np.int64), np.empty(len(negative))
    n_rows = n_entries = 0
    for k in by_positive:
        is_new = n_rows == 0 or rows[n_rows - 1] != positive[k]
        if is_new:
            rows[n_rows] = positive[k]
            start[n_rows] = n_entries
            n_rows += 1
        if is_new or columns[n_entries - 1] != negative[k]:
            columns[n_entries] = negative[k]
            quanta[n_entries] = 0
            n_entries += 1
        quanta[n_entries - 1] += amount[k]
    start[n_rows] = n_entries
    return rows[:n_rows].copy(), start[: n_rows + 1].copy(), columns[:n_entries].copy(), quanta[:n_entries].copy()


@inner()
def _sorted_by(keys, sequence, n_keys):
    """`sequence`, places in `keys`, by the keys there; equal keys keep their order."""
    first = np.zeros(n_keys + 1, dtype=np.int64)
    for place in sequence:
        first[keys[place] + 1] += 1
    for key in range(n_keys):
        first[key + 1] += first[key]
    result = np.empty(len(sequence), dtype=np.int64)
    for place in sequence:
        result[first[keys[place]]] = place
        first[keys[place]] += 1
    return result
