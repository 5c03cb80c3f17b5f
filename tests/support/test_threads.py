"""Threads: limits that overlap, and work that comes back in order."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from threadpoolctl import threadpool_info

from eesvm._support.threads import in_order, one_product_thread, product_threads, workers


def product_threads_now():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_blocks_of_one_product_thread_may_end_in_any_order():
    before = product_threads_now()
    first, second = one_product_thread(), one_product_thread()
    first.__enter__()
    second.__enter__()
    assert product_threads_now() == {1}
    first.__exit__(None, None, None)
    assert product_threads_now() == {1}
    with workers(2), product_threads(3):
        assert product_threads_now() == {1}
    second.__exit__(None, None, None)
    assert product_threads_now() == before


def in_a_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_a_limit_holds_whichever_thread_set_the_one_before():
    before = product_threads_now()
    for run in (lambda work: work(), in_a_thread, lambda work: work(), in_a_thread):
        with one_product_thread():
            assert product_threads_now() == {1}
        assert product_threads_now() == before

        def inside():
            with one_product_thread():
                return product_threads_now()

        assert run(inside) == {1}
        assert product_threads_now() == before


def test_a_block_may_end_in_another_thread():
    before = product_threads_now()
    block = one_product_thread()
    in_a_thread(block.__enter__)
    assert product_threads_now() == {1}
    block.__exit__(None, None, None)
    assert product_threads_now() == before


def test_of_two_limits_the_lower_one_holds():
    before = product_threads_now()
    with product_threads(3):
        assert product_threads_now() == {3}
        lower = one_product_thread()
        in_a_thread(lower.__enter__)
        assert product_threads_now() == {1}
        in_a_thread(lambda: lower.__exit__(None, None, None))
        assert product_threads_now() == {3}
    assert product_threads_now() == before


def test_an_error_gives_products_their_threads_back():
    before = product_threads_now()
    with pytest.raises(ValueError, match="no"), one_product_thread():
        raise ValueError("no")
    assert product_threads_now() == before


@pytest.mark.parametrize("n_workers", [1, 2, 5])
def test_answers_come_in_order_and_few_items_are_taken_ahead(n_workers):
    taken = []

    def work(k):
        time.sleep(0.001 * (7 * k % 5))
        return k * k

    answers = in_order(work, (taken.append(k) or k for k in range(30)), n_workers)
    assert next(answers) == (0, 0)
    assert len(taken) <= 2 * n_workers
    assert list(answers) == [(k, k * k) for k in range(1, 30)]


def test_who_stops_early_leaves_no_thread_behind():
    before = threading.active_count()
    answers = in_order(lambda k: k, range(100), 4)
    next(answers)
    answers.close()
    assert threading.active_count() == before
