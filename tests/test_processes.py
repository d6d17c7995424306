"""Threads, processes, signals and interpreters: the same bits, no hang, no crash.

What needs a process of its own is a function here that the process runs: `python test_processes.py NAME`.
"""

import hashlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import fastcov as fc
from fastcov import waves
from fastcov.deferred import deferrable
from fastcov.phasespace import psi2s_kkpipi

MOMENTA = psi2s_kkpipi(4000, seed=3)
MANY = [np.tile(p, (25, 1)) for p in MOMENTA]  # enough for several threads
THREADS = 8
SECONDS = 120  # nothing here takes a tenth of it


def in_a_new_process(function, *arguments, **environment):
    """What the function prints, run in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, __file__, function.__name__, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def at_once(works):
    """The result of each function, all started together, a thread each."""
    barrier = threading.Barrier(len(works))
    results = [None] * len(works)

    def run(n):
        barrier.wait()
        try:
            results[n] = works[n]()
        except BaseException as error:
            results[n] = error

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def parts(value):
    return value if isinstance(value, tuple) else (value,)


def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()


def fresh(wave=waves.phif243):
    """A fused function that has not been traced."""
    return fc.fused(lambda kp, km, pip, pim: wave(kp, km, pip, pim))


# Threads


def test_different_functions_at_once():
    functions = [*waves.all[:3], waves.phif243, fc.bundle(*waves.psi_phi_f), waves.phif021.jacobian]
    functions += [fc.fused(lambda a, b: fc.sum(fc.dot(a, b))), fc.fused(lambda a: a * fc.dot(a, a))]
    assert len(functions) == THREADS

    def call(function):
        momenta = MOMENTA[: function.arity]
        return digest(*parts(function(*momenta)))

    wanted = [call(function) for function in functions]
    works = [lambda f=f: [call(f) for _ in range(10)] for f in functions]
    for got, one in zip(at_once(works), wanted, strict=True):
        assert set(got) == {one}


def test_first_calls_at_once():
    wanted = digest(waves.phif243(*MOMENTA))
    for _ in range(5):
        function = fresh()
        assert set(at_once([lambda f=function: digest(f(*MOMENTA))] * THREADS)) == {wanted}


def test_first_derivatives_at_once():
    cotangent = np.ones((4000, 4))
    wanted = digest(*waves.phif021.vjp(*MOMENTA, cotangent=cotangent))
    for _ in range(3):
        function = fresh(waves.phif021)
        calls = [lambda f=function: digest(*f.vjp(*MOMENTA, cotangent=cotangent))] * THREADS
        assert set(at_once(calls)) == {wanted}


def test_many_constants_at_once():
    """More constants than traces are kept for, so that some are dropped while others are made, copied and pickled."""
    momenta = [p[:5] for p in MOMENTA]
    function = fc.fused(lambda a, b, *, k=0: a * k + b)

    def call(n):
        for k in range(60 * n, 60 * n + 60):
            assert np.array_equal(function(*momenta[:2], k=k), momenta[0] * k + momenta[1])
            if k % 10 == 0:
                pickle.loads(pickle.dumps(function.with_defaults(threads=1)))

    at_once([lambda n=n: call(n) for n in range(THREADS)])


def test_threads_share_one_output_array():
    out = np.full((THREADS, 4000, 4), np.nan)
    at_once([lambda n=n: waves.phif243(*MOMENTA, out=out[n]) for n in range(THREADS)])
    wanted = waves.phif243(*MOMENTA)
    assert all(np.array_equal(part, wanted) for part in out)


# Processes


def fork():
    """Use threads, then fork while a thread computes: the child computes in one thread, and gets the same."""
    warnings.simplefilter("ignore", DeprecationWarning)  # about forking with threads, as is meant here
    wanted = waves.phif243(*MANY, threads=2)
    busy = threading.Thread(target=lambda: [waves.phif243(*MANY, threads=2) for _ in range(20)])
    busy.start()
    time.sleep(0.02)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        equal = np.array_equal(waves.phif243(*MANY, threads=2), wanted)
        equal &= np.array_equal(fresh()(*MANY), wanted)
        tasks = Path("/proc/self/task")
        alone = not tasks.exists() or len(list(tasks.iterdir())) == 1
        os._exit(0 if equal and alone else 1)
    _, status = os.waitpid(child, 0)
    busy.join()
    assert np.array_equal(waves.phif243(*MANY, threads=2), wanted)
    print(os.waitstatus_to_exitcode(status))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_during_use():
    assert in_a_new_process(fork) == "0"


def fork_during_a_trace():
    """Fork while another thread traces, and holds the locks for it: the child traces anew."""
    warnings.simplefilter("ignore", DeprecationWarning)
    momenta = [p[:5] for p in MOMENTA[:2]]
    tracing, forked = threading.Barrier(3), threading.Event()

    def held(a, b):
        if not forked.is_set():
            tracing.wait()
            forked.wait()
        return fc.orbital(3, a, b)

    tensor = deferrable(rank=lambda a, b: 3)(held)
    function = fc.fused(lambda a, b: fc.einsum("abc,b,c->a", held(a, b), b, b))
    works = lambda: fc.dense(tensor(*momenta)), lambda: function(*momenta)
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    tracing.wait()
    child = os.fork()
    forked.set()
    if child == 0:
        signal.alarm(30)
        print(digest(*[work() for work in works]), flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    for thread in threads:
        thread.join()
    print(digest(*[work() for work in works]))
    print(os.waitstatus_to_exitcode(status))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_during_a_trace():
    of_child, of_parent, status = in_a_new_process(fork_during_a_trace).split()
    assert of_child == of_parent
    assert status == "0"


def pool(method):
    """Functions that no other process can import, sent there as pickles."""
    warnings.simplefilter("ignore", DeprecationWarning)
    functions = [fresh(), fresh(waves.phif201).vjp, fc.bundle(waves.phif001, waves.phif021), waves.u_DD_1]
    keywords = [{}, {"cotangent": np.ones((4000, 4))}, {}, {}]
    wanted = [digest(*parts(f(*MOMENTA, **k))) for f, k in zip(functions, keywords, strict=True)]
    with multiprocessing.get_context(method).Pool(2) as workers:
        waiting = [workers.apply_async(f, MOMENTA, k) for f, k in zip(functions, keywords, strict=True)]
        got = [digest(*parts(one.get(SECONDS))) for one in waiting]
    print(got == wanted)


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_pickled_functions_in_a_pool(method):
    assert in_a_new_process(pool, method) == "True"


def beside_torch(order):
    """Two OpenMP runtimes in one process, either loaded and used first."""
    if order == "torch first":
        import torch

        torch.ones(500, 500) @ torch.ones(500, 500)
    print(digest(waves.phif243(*MANY, threads=2)))
    import torch

    for _ in range(5):
        assert (torch.ones(500, 500) @ torch.ones(500, 500))[0, 0] == 500
        print(digest(waves.phif243(*MANY, threads=2)))
        print(digest(waves.phif243(*map(torch.from_numpy, MANY), threads=2).numpy()))


@pytest.mark.parametrize("order", ["torch first", "torch last"])
def test_beside_torch(order):
    pytest.importorskip("torch")
    printed = in_a_new_process(beside_torch, order).split()
    assert len(printed) == 11
    assert set(printed) == {digest(waves.phif243(*MANY))}


# Signals


def interrupted(threads):
    """Ctrl-C, 0.3 s into a call that would take minutes; prints how much processor time passed until it returned."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
    sent = []

    def press():
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)

    total = fc.fused(lambda kp, km, pip, pim: fc.sum(waves.phif243(kp, km, pip, pim)))
    wanted = total(*MOMENTA)
    endless = [np.broadcast_to(p[:1, None], (10**5, 10**5, 4)) for p in MOMENTA]
    try:
        threading.Timer(0.3, press).start()
        total(*endless, threads=int(threads))
    except KeyboardInterrupt:
        late = time.process_time() - sent[0]
        assert np.array_equal(total(*MOMENTA), wanted)
        print(late)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_interrupt_is_prompt(threads):
    assert 0 <= float(in_a_new_process(interrupted, threads)) < 1


# Interpreters


def in_a_subinterpreter():
    """Import and call where the module has been loaded by another interpreter already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import _interpreters as interpreters  # Python 3.13
        except ImportError:
            import _xxsubinterpreters as interpreters
    code = """
import warnings
warnings.simplefilter("ignore")
try:
    from fastcov import waves
    from fastcov.phasespace import psi2s_kkpipi
    shape = waves.phif243(*psi2s_kkpipi(10)).shape
    print("worked" if shape == (10, 4) else shape)
except ImportError:
    print("refused")
"""
    waves.phif243(*MOMENTA)
    failure = interpreters.run_string(interpreters.create(), code)
    print("failed" if failure else "after it", digest(waves.phif243(*MOMENTA)))


def test_a_subinterpreter_works_or_refuses():
    first, *rest = in_a_new_process(in_a_subinterpreter).splitlines()
    assert first in ("worked", "refused")
    assert rest == [f"after it {digest(waves.phif243(*MOMENTA))}"]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a global lock")
def test_without_a_global_lock():
    """The module asks for the lock, so that Python turns it on when the module is imported."""
    assert sys._is_gil_enabled()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
