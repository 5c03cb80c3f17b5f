"""Many linear SVMs at once: each has one positive of its own, all share the negatives.

In: E positives and M negatives as float32 rows. Out: E weight vectors and biases, each with its duality gap.

For every positive x_j, with augmented rows (x, B) so that B times the last weight is the bias:

    min_w  1/2 |w|^2 + C+ loss(t_j - w.x_j) + C- sum_n loss(t_n + w.x_n)         loss: max(0, .) or its square

Often hardly any negative supports any of these SVMs, and they support each other's. Then a *pool* of negatives that
violate the margin of some exemplar is grown until none outside violates one:

1. `scan`: look at all negatives in blocks, keep each exemplar's worst violators, add up its losses. The only step that
   touches all negatives, so they may be streamed from disk.
2. `hinge`, `squared_hinge`: solve each exemplar's problem over the pool.
3. `solve`: repeat until, for every exemplar, no negative violates its optimality conditions by more than `tol` and the
   duality gap, over all negatives, is at most `tol` of the objective.

Where one exemplar shows that a large part of the negatives has to be looked at closely, as with the centred descriptors
that a PCA gives, the pool holds all of them from the beginning and `newton` solves the problems of many exemplars at
once; a scan then certifies them in the same way. Before that, in many dimensions and with a large C, each exemplar has
a set of its own (`working_sets`), since its supporting negatives are few and hardly anybody else's.
"""

from eesvm.exemplars.solver.problem import Budget, Margins, Objective, Solution, TrainingProblem
from eesvm.exemplars.solver.solve import solve_together

__all__ = ["Budget", "Margins", "Objective", "Solution", "TrainingProblem", "solve_together"]
