"""
Verifying a certificate
=======================

"Optimal" is a claim. The exact solver leaves evidence for it: a tree that splits the space of all thresholds into
boxes, and for each box at a leaf the proof that nothing in it is better. ``verify`` walks the tree with the scores
alone. It shares no code with the solver, and it adds in exact arithmetic.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np

from eesvm import load_certificate, save_certificate, solve, verify
from eesvm.calibration.tables.examples import synthetic_score_table

problem = synthetic_score_table(12, 200, 4000, "overlapping").problem()
result = solve(problem)
certificate = result.certificate
print(f"claimed: loss {result.loss:.0f}, lower bound {result.lower_bound:.0f}, {result.status}")
print(f"evidence: {certificate.n_nodes} nodes, {certificate.n_leaves} leaves, {certificate.n_shares} shares")

# %%
# The certificate can be kept, sent and read again: arrays in an ``.npz``, never a pickle.

with TemporaryDirectory() as folder:
    file = Path(folder) / "certificate.npz"
    save_certificate(file, certificate)
    received = replace(result, certificate=load_certificate(file))
verify(problem, received)

# %%
# What if somebody lies? About the bound, about the loss, or with a certificate for other scores:

for lie, problem_used in (
    (replace(result, lower_bound=result.lower_bound + 1), problem),
    (replace(result, loss=result.loss - 1), problem),
    (result, synthetic_score_table(12, 200, 4000, "overlapping", random_state=1).problem()),
):
    print(verify(problem_used, lie).problems[0])

# %%
# The tree. A split is a question about one threshold: is it below a score, or not? Every choice of thresholds ends in
# exactly one leaf, and no leaf allows for less than the bound.


def layout(node: int, depth: int, places: dict, next_leaf: list[int]) -> float:
    """Leaves side by side, parents above the middle of their children."""
    if certificate.split_exemplar[node] < 0:
        x = float(next_leaf[0])
        next_leaf[0] += 1
    else:
        children = certificate.open_child[node], certificate.shut_child[node]
        x = float(np.mean([layout(int(child), depth + 1, places, next_leaf) for child in children]))
    places[node] = (x, -depth)
    return x


places: dict[int, tuple[float, int]] = {}
layout(0, 0, places, [0])
figure, axes = plt.subplots(figsize=(10, 4.6))
colours = plt.get_cmap("tab20")
for node, (x, y) in places.items():
    exemplar = int(certificate.split_exemplar[node])
    if exemplar < 0:
        axes.plot(x, y, "s", color="0.75", ms=3)
        continue
    for child in (certificate.open_child[node], certificate.shut_child[node]):
        axes.plot([x, places[int(child)][0]], [y, places[int(child)][1]], color="0.8", lw=0.8, zorder=1)
    axes.plot(x, y, "o", color=colours(exemplar), ms=6, zorder=2)
for exemplar in sorted(set(certificate.split_exemplar[certificate.split_exemplar >= 0].tolist())):
    axes.plot([], [], "o", color=colours(exemplar), label=f"threshold {exemplar}")
axes.plot([], [], "s", color="0.75", ms=3, label="leaf")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
axes.set_axis_off()
axes.set_title(f"{certificate.n_leaves} boxes, none of which allows for fewer than {result.lower_bound:.0f} negatives")
plt.show()
