"""Selective search (Uijlings et al. 2013), compiled: boxes around regions that grow together."""

from eesvm.windows.selective_search.search import VERSION, selective_search
from eesvm.windows.selective_search.strategies import PLANS

__all__ = ["PLANS", "VERSION", "selective_search"]
