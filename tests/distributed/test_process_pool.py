"""Processes start once, never hang, and say what went wrong and where."""

import os
import pickle
import time

import pytest
import torch
import torch.distributed as dist

from attn_course.distributed import demos as tasks
from attn_course.distributed.process_pool import Processes, _answer, _raise_the_first_cause


def rank_and_size():
    return dist.get_rank(), dist.get_world_size()


def stop_in_one():
    if dist.get_rank() == 1:
        raise KeyError("nothing here")
    dist.barrier()


def wait_for_one_who_left():
    if dist.get_rank() == 1:
        dist.barrier()


def sleep_for_a_minute():
    time.sleep(60)


def end_at_once():
    os._exit(3)


def test_each_process_has_its_own_rank_and_results_come_in_their_order(processes):
    assert processes.run(rank_and_size) == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert processes.run(rank_and_size, num_processes=2) == [(0, 2), (1, 2)]
    assert processes.run(tasks.add_up, [1.0, 2.0, 4.0], num_processes=3) == [7.0, 7.0, 7.0]


def test_a_deadlock_ends_with_the_line_in_which_each_process_waits_and_the_processes_live_on(processes):
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="after 1 s a process still waits for another one") as caught:
        processes.run(tasks.both_send_first, num_processes=2, timeout=1)
    assert time.monotonic() - started < 15
    assert str(caught.value).count("waits in: dist.send(mine, dst=other)") == 2
    assert processes.run(tasks.send_and_receive_at_once, num_processes=2) == [1.0, 0.0]


def test_an_error_in_one_process_is_told_with_its_line_and_nobody_waits_for_it(processes):
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"process 1 of 2 stopped in: raise KeyError.*\n  KeyError: 'nothing here'"):
        processes.run(stop_in_one, num_processes=2)
    assert time.monotonic() - started < 15
    assert processes.run(rank_and_size, num_processes=1) == [(0, 1)]


def test_a_process_that_timed_out_at_the_rendezvous_is_not_named_as_the_cause(tmp_path):
    message = pickle.dumps((tasks.add_up, ([1.0],), 0, 2, str(tmp_path / "meeting"), 1.0))
    alone = _answer(message)
    assert (alone["waited"], alone["by gloo"]) == (True, True), alone["error"]
    refused = {"error": "ValueError: 3 heads", "line": "f(x)", "waited": False, "by gloo": False}
    with pytest.raises(RuntimeError, match=r"process 1 of 2 stopped in: f\(x\)\n  ValueError: 3 heads"):
        _raise_the_first_cause([alone, refused], 1.0)
    with pytest.raises(TimeoutError, match=r"after 1 s .*waits for another one\n  process 0 of 2 waits in: backend"):
        _raise_the_first_cause([alone, {"returned": 1.0}], 1.0)


def test_a_process_waiting_for_a_finished_one_gets_an_error(processes):
    with pytest.raises(TimeoutError, match=r"\n  process 1 of 2 waits in: dist.barrier\(\)$"):
        processes.run(wait_for_one_who_left, num_processes=2, timeout=1)


def test_unresponsive_processes_are_ended_and_the_next_call_starts_new_ones(monkeypatch):
    monkeypatch.setattr("attn_course.distributed.process_pool.TO_ANSWER", 0.2)
    with Processes(1) as one:
        with pytest.raises(TimeoutError, match=r"no answer from process 0 of 1 within 0.1 s; all were ended"):
            one.run(sleep_for_a_minute, timeout=0.1)
        with pytest.raises(RuntimeError, match="process 0 of 1 has ended without an answer"):
            one.run(end_at_once)
        assert one._workers == []


@pytest.mark.bad_input
def test_a_task_that_cannot_run_is_refused_before_a_process_starts():
    with pytest.raises(ValueError, match="num_processes"):
        Processes(0)
    two = Processes(2)
    with pytest.raises(ValueError, match=r"num_processes \(3\) must be between 1 and the 2"):
        two.run(tasks.add_up, [1.0], num_processes=3)
    with pytest.raises(ValueError, match="must be a function of a module"):
        two.run(lambda: torch.zeros(1))
    assert two._workers == []
