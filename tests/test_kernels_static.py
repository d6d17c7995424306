"""What can be proved of the Triton kernels and their launcher without a GPU: the compiled code, and launches to a CUDA
driver that only remembers them."""

import ctypes
import gc
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from test_cpu import make_tape

import fastcov as fc
from fastcov import kernels
from fastcov.opcodes import OPCODES
from fastcov.tape import Input, Output, Tape

HERE = Path(__file__).parent
XYZE = (0, 1, 2, 3)


def python(code, **environment):
    """What a new process prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, cwd=HERE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_needs_neither_torch_nor_triton():
    code = "import sys, fastcov, fastcov.kernels; print(sorted({'torch', 'triton'} & set(sys.modules)))"
    assert python(code) == "[]\n"


@pytest.mark.parametrize("module", ["torch", "triton"])
def test_without_torch_or_triton(module):
    code = f"""
import importlib.util, sys
from fastcov import kernels
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == {module!r} else find(name, *rest)
sys.modules[{module!r}] = None
print(kernels.available())
try:
    kernels.run(None, (1,), [], [], [], [], "d")
except ImportError as error:
    print(error)
"""
    report, error = python(code).splitlines()
    assert report == f"(False, '{module} is not installed: install fastcov[gpu]')"
    assert error.endswith("install fastcov[gpu]")


torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("needs Triton's compiler, not its interpreter", allow_module_level=True)

from fastcov.kernels import compilation, launcher, report  # noqa: E402
from fastcov.kernels.program import Layout  # noqa: E402


@fc.fused
def phif243(psi, r, phi, r1, f, r2):
    t4, t1, t2 = fc.orbital(4, psi, r), fc.orbital(1, phi, r1), fc.orbital(2, f, r2)
    return fc.einsum("mnls,n,ls->m", t4, t1, t2)


NVIDIA = [target for target in report.TARGETS if target.startswith("sm_")]
SCALARS = make_tape("scalar", "scalar", ["load_scalar 0 0", "mul_constant 1 0 0", "store_scalar 0 1"])
SUMS = make_tape("vector vector", "scalar+", ["load_vector 0 0", "load_vector 1 1", "dot 0 0 1", "store_scalar 0 0"])


def ptx(tape, layouts, compute, target="sm_90"):
    return compilation.compile_tape(tape, compilation.plan(tape, layouts, compute), report.TARGETS[target]).asm["ptx"]


def test_the_interpreter_is_not_there():
    assert kernels.available(interpret=True) == (False, "TRITON_INTERPRET=1 must be set before triton is imported")
    with pytest.raises(RuntimeError, match=r"TRITON_INTERPRET=1 must be set before triton is imported"):
        kernels.run(SCALARS, (1,), [torch.ones(1)], [None], [torch.ones(1)], [None], "d", interpret=True)


@pytest.mark.parametrize(("storage", "compute"), report.MODES)
@pytest.mark.parametrize("target", NVIDIA)
def test_phif243(target, storage, compute):
    found = report.figures("phif243", phif243.tape, target, storage, compute)
    assert report.check(found) == []
    assert found.registers <= {"f": 64, "d": 128}[compute]
    assert found.spills == found.local == found.shared == found.barriers == found.operations["fma"] == 0
    each = {"fp32": 1, "fp64": 2}[storage]
    assert found.loads == {128: 6 * each}
    assert found.stores == {128: each}
    assert found.bytes == 112 * each


def test_amd():
    found = report.figures("phif243", phif243.tape, "gfx942", "fp64", "d")
    assert found.spills == found.local == found.shared == found.barriers == 0
    assert found.bytes == 224


def test_operations_of_the_code_are_those_of_the_tape():
    for target in NVIDIA:
        found = report.figures("phif243", phif243.tape, target, "fp64", "d")
        assert sum(found.operations.values()) == phif243.tape.cost().flops
        assert found.operations["div"] == 3


def test_without_division_there_is_no_multiply_add():
    for storage, compute in report.MODES:
        found = report.figures("dot", SUMS, "sm_90", storage, compute)
        assert report.check(found) == []
        assert not any("FMA" in name for name in found.issued)
        assert found.issued.total() >= 7 * found.events


@pytest.mark.parametrize(("compute", "bits"), [("d", "0d3F9D41D41D41D41D"), ("f", "0f3CEA0EA1")])
def test_constants_are_exact(compute, bits):
    assert np.float64(1 / 35).view(np.uint64) == 0x3F9D41D41D41D41D
    code = ptx(SCALARS, [Layout("unit", "fp64", ()), Layout("unit", "fp64", ())], compute)
    assert re.search(rf"mul\.rn\.f\d+\s.*{bits}", code)
    assert (".f32" in code.replace("cvt.", "")) == (compute == "f")


@pytest.mark.parametrize(("compute", "word"), [("d", "f64"), ("f", "f32")])
def test_division_and_root_are_correctly_rounded(compute, word):
    loads, stores = ["load_scalar 0 0", "load_scalar 1 1"], ["store_scalar 0 3", "store_scalar 1 4"]
    operations = ["div 2 0 1", "sqrt 3 2", "reciprocal 4 1"]
    tape = make_tape("scalar scalar", "scalar scalar", [*loads, *operations, *stores])
    code = ptx(tape, [Layout("unit", f"fp{word[1:]}", ())] * 4, compute)
    assert set(re.findall(r"\b(?:div|rcp|sqrt)\.[a-z0-9.]*", code)) <= {
        f"{x}.rn.{word}" for x in ("div", "rcp", "sqrt")
    }
    assert ".ftz" not in code
    assert ".approx" not in code


def test_offsets_are_64_bits_wide():
    layouts = [Layout("strided", "fp32", ()), Layout("strided", "fp32", ())]
    code = ptx(SCALARS, layouts, "f")
    assert re.search(r"mul\.lo\.s64|mad\.lo\.s64", code)
    assert not re.search(r"mul\.lo\.s32|mad\.lo\.s32", code)


def test_every_opcode_compiles():
    """One kernel of all operations on three vectors and four scalars, each result stored."""
    code = [*(f"load_vector {n} {n}" for n in range(3)), *(f"load_scalar {n} {n + 3}" for n in range(4))]
    kinds = []
    for op in OPCODES:
        if op.result and not op.name.startswith("load"):
            operands = [n if kind in "vs" else 1 for n, kind in enumerate(op.operands)]
            code += [
                " ".join(map(str, [op.name, 7, *operands])),
                f"store_{'vector' if op.result == 'v' else 'scalar'} {len(kinds)} 7",
            ]
            kinds.append("vector" if op.result == "v" else "scalar")
    code += [f"store_row {len(kinds)} {row} {row % 3}" for row in range(4)]
    tape = make_tape("vector vector vector scalar scalar scalar scalar", " ".join([*kinds, "matrix"]), code)
    assert {OPCODES[row[0]].name for row in tape.code} == {op.name for op in OPCODES}
    for storage, compute in (("fp64", "d"), ("fp32", "f")):
        assert report.check(report.figures("opcodes", tape, "sm_90", storage, compute)) == []


GOOD = report.Figures(
    "phif243", "sm_90", "fp32", "f", 40, 0, 0, 0, 0, *[report.Counter() for _ in range(4)], 1, 0, 112, 0, 0
)._replace(loads=report.Counter({128: 6}), stores=report.Counter({128: 1}))


def test_the_check_finds():
    def problems(**changes):
        return " ".join(report.check(GOOD._replace(**changes)))

    assert report.check(GOOD) == []
    assert "spilled" in problems(spills=1)
    assert "local memory" in problems(local=8)
    assert "shared memory" in problems(shared=1024)
    assert "barriers" in problems(barriers=1)
    assert problems(barriers=1, shared=64, sums=1) == ""
    assert "less than 128 bits" in problems(loads=report.Counter({128: 5, 64: 2}))
    assert problems(loads=report.Counter({128: 5, 64: 2}), packed=96, other=16) == ""
    assert "multiply-add" in problems(operations=report.Counter(fma=1, div=1))
    assert "multiply-add" in problems(issued=report.Counter(FFMA=1))
    assert problems(issued=report.Counter(FFMA=1), operations=report.Counter(div=1)) == ""
    assert "128 bytes per event for 112" in problems(loads=report.Counter({128: 7}))
    assert problems(loads=report.Counter({128: 6, 32: 4}), shared_operands=16) == ""


def test_unrounded_operations_of_the_ptx_count_as_multiply_add():
    code = "add.rn.f32 %f1; mul.f64 %d1; fma.rn.f32x2 %r1; sub.rn.f32x2 %r2; add.s32 %r3; sqrt.rn.f64 %d2;"
    assert report._ptx_operations(code) == {"add": 3, "fma": 3, "sqrt": 1}


def test_modelled_time():
    machine = report.Machine("any", "sm_90", 1000, 10, 20, "")
    assert GOOD.time(machine) == pytest.approx(0.112)
    assert GOOD._replace(issued=report.Counter(DADD=5000, FMUL=10000)).time(machine) == pytest.approx(2)


def test_first_compilation_and_the_next_process(tmp_path):
    code = """
import time, fastcov as fc
from fastcov.kernels import compilation, report
from test_kernels_static import phif243
tape = phif243.tape
planned = compilation.plan(tape, report.packed_layouts(tape, "fp64"), "d")
start = time.process_time(), time.perf_counter()
compilation.compile_tape(tape, planned, report.TARGETS["sm_90"])
print(time.process_time() - start[0], time.perf_counter() - start[1])
"""
    environment = {"TRITON_CACHE_DIR": str(tmp_path)}
    first, _ = map(float, python(code, **environment).split())
    binaries = set(tmp_path.rglob("*.cubin"))
    assert first < 2
    assert len(binaries) == 1
    second, _ = map(float, python(code, **environment).split())
    assert second < first
    assert set(tmp_path.rglob("*.cubin")) == binaries


def test_a_failed_compilation_names_the_tape(monkeypatch):
    def fail(*arguments, **keywords):
        raise ValueError("ptxas says no")

    monkeypatch.setattr(triton, "compile", fail)
    planned = compilation.plan(SCALARS, [Layout("unit", "fp32", ())] * 2, "f")
    expected = rf"{SCALARS.fingerprint[:12]} \(3 operations.*cuda 90.*{re.escape(triton.__version__)}.*ptxas says no"
    with pytest.raises(RuntimeError, match=expected):
        compilation.compile_tape(SCALARS, planned, report.TARGETS["sm_90"])


class FakeDevice:
    """A driver that remembers the last launch, under Triton's own launching code."""

    stream = 0x5EED
    index = 0

    def __init__(self, library):
        self.library = library

    def count(self, name):
        return ctypes.c_long.in_dll(self.library, name).value

    def remember(self, parameters):
        """Keep so many parameters of coming launches, which must have them."""
        ctypes.c_int.in_dll(self.library, "fake_parameters").value = parameters

    def last(self):
        """Grid, stream and parameters of the last launch."""
        parameters = ctypes.c_int.in_dll(self.library, "fake_parameters").value
        grid = tuple((ctypes.c_uint * 3).in_dll(self.library, "fake_grid"))
        stream = ctypes.c_ulonglong.in_dll(self.library, "fake_stream").value
        return grid, stream, list((ctypes.c_ulonglong * 64).in_dll(self.library, "fake_values"))[:parameters]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    pytest.importorskip("triton.backends.nvidia.driver")
    folder = tmp_path_factory.mktemp("cuda")
    include = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    path = folder / "libcuda.so.1"
    options = ["-shared", "-fPIC", "-O2", "-w", f"-I{include}", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([os.environ.get("CC", "cc"), *options, HERE / "fake_cuda.c", "-o", path], check=True)
    return folder, ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


@pytest.fixture
def device(library, monkeypatch):
    from triton.backends.nvidia.driver import CudaDriver

    if torch.cuda.is_available():
        pytest.skip("a real driver is loaded")
    folder, cuda = library
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", str(folder))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder / "cache"))
    fake = FakeDevice(cuda)
    driver = CudaDriver()
    monkeypatch.setattr(driver, "get_current_device", lambda: fake.index, raising=False)
    monkeypatch.setattr(driver, "get_current_stream", lambda device: fake.stream + device, raising=False)
    monkeypatch.setattr(driver, "get_device_capability", lambda device=0: (9, 0), raising=False)
    monkeypatch.setattr(launcher, "_device_index", lambda x: fake.index)
    monkeypatch.setattr(launcher, "_kernels", {})
    monkeypatch.setattr(launcher, "_sum_launches", {})
    launcher._compiled.cache_clear()
    fake.remember(1)
    monkeypatch.setattr(triton.runtime.driver, "_active", driver)
    yield fake
    launcher._kernels.clear()  # kernels unload themselves, by the driver they were loaded with
    launcher._sum_launches.clear()
    launcher._compiled.cache_clear()
    gc.collect()


def launch(tape, n, inputs, outputs, compute="d"):
    launcher.run(tape, (n,), inputs, [XYZE] * len(inputs), outputs, [XYZE] * len(outputs), compute)


def test_what_is_launched(device):
    n = 1000
    inputs = [torch.empty(n, 4) for _ in range(6)]
    out = torch.empty(n, 4)
    device.remember(8)
    launch(phif243.tape, n, inputs, [out])
    assert device.last() == ((8, 1, 1), device.stream, [n, *[x.data_ptr() for x in (*inputs, out)]])


def test_more_than_2_to_the_31_events(device):
    n = 2**33 + 1
    x, y = torch.empty(1).expand(n), torch.empty(1)
    operands = launcher._Operands((n,), n)
    operands.scalar(x)
    operands.places([y.data_ptr()], [3], torch.float32, ())
    kernel = launcher._kernel(SCALARS, tuple(operands.layouts), "f", 0)
    device.remember(4)
    operands.launch(kernel, 0)
    assert device.last() == (
        (-(-n // kernel.block), 1, 1),
        device.stream,
        [n, x.data_ptr(), y.data_ptr(), 3],
    )


def test_strided_operands_and_numbers(device):
    tape = make_tape(
        "vector scalar", "vector", ["load_vector 0 0", "load_scalar 0 1", "vscale 1 0 0", "store_vector 0 1"]
    )
    x, out = torch.empty(50, 8, dtype=torch.float64)[:, ::2], torch.empty(50, 4, dtype=torch.float64)
    device.remember(11)
    launch(tape, 50, [x, 0.1], [out])
    address = x.data_ptr()
    number = int(np.float64(0.1).view(np.uint64))
    _, _, values = device.last()
    assert values == [50, *[address + 16 * c for c in range(4)], out.data_ptr(), 8, 8, 8, 8, number]


def test_no_events_launch_nothing(device):
    before = device.count("fake_launches")
    total = torch.ones(())
    launch(SUMS, 0, [torch.empty(0, 4)] * 2, [total])
    assert device.count("fake_launches") == before
    assert total == 0


def test_a_sum_takes_few_launches(device):
    before = device.count("fake_launches")
    launch(SUMS, 1000, [torch.empty(1000, 4)] * 2, [torch.empty(())])
    assert device.count("fake_launches") == before + 2


def test_compiled_once_by_two_threads_and_loaded_once_per_device(device, monkeypatch):
    compiled = []
    compile_tape = launcher.compile_tape

    def slowly(*arguments):
        compiled.append(arguments)
        time.sleep(0.2)
        return compile_tape(*arguments)

    monkeypatch.setattr(launcher, "compile_tape", slowly)
    loads = device.count("fake_loads")
    tape = Tape((Input("x", "scalar"),), (Output("scalar"),), (), 0, 1, (SCALARS.code[0], (SCALARS.code[2][0], 0, 0)))
    barrier = threading.Barrier(4)

    def work():
        barrier.wait()
        launch(tape, 3, [torch.empty(3)], [torch.empty(3)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1
    assert device.count("fake_loads") == loads + 1
    device.index = 1
    launch(tape, 3, [torch.empty(3)], [torch.empty(3)])
    assert len(compiled) == 1
    assert device.count("fake_loads") == loads + 2
    assert device.last()[1] == device.stream + 1


def test_a_split_tape_is_several_launches(device, monkeypatch):
    code = ["load_vector 0 0", "load_vector 1 1", "store_vector 0 0", "store_vector 1 1"]
    tape = make_tape("vector vector", "vector vector", code)
    monkeypatch.setattr(launcher, "LIMITS", {"d": 4})
    launcher._parts.cache_clear()
    before = device.count("fake_launches")
    launch(tape, 5, [torch.empty(5, 4)] * 2, [torch.empty(5, 4), torch.empty(5, 4)])
    assert device.count("fake_launches") == before + 2
    launcher._parts.cache_clear()


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer takes time in Python, not in torch")
def test_host_cost_of_a_repeated_launch(device):
    """At most fourteen of torch's additions of small tensors: 20 microseconds where one takes 1.43, without a driver.

    The quickest of many tries of each in turn, as other work on the machine disturbs.
    """
    n = 1000
    inputs, outputs = [torch.empty(n, 4) for _ in range(6)], [torch.empty(n, 4)]
    arguments = phif243.tape, (n,), inputs, [XYZE] * 6, outputs, [XYZE], "f"
    small = torch.ones(4)

    def mean_time(function, count):
        start = time.perf_counter()
        for _ in range(count):
            function()
        return (time.perf_counter() - start) / count

    launch, addition = [], []
    launcher.run(*arguments)
    for _ in range(50):
        launch.append(mean_time(lambda: launcher.run(*arguments), 200))
        addition.append(mean_time(lambda: torch.add(small, small), 2000))
    print(f"launch {min(launch) * 1e6:.1f} us, addition {min(addition) * 1e6:.2f} us")
    assert min(launch) < 14 * min(addition)


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@gpu
@pytest.mark.parametrize(("storage", "compute"), report.MODES)
@pytest.mark.parametrize("n", [1, 31, 100003])
def test_on_a_device_the_bits_are_those_of_the_cpu(n, storage, compute):
    from tape_numpy import evaluate

    dtype = {"fp32": np.float32, "fp64": np.float64}[storage]
    arrays = [np.random.default_rng(s).normal(size=(n, 4)).astype(dtype) for s in range(6)]
    out = torch.full((n, 4), torch.nan, dtype=getattr(torch, np.dtype(dtype).name), device="cuda")
    launch(phif243.tape, n, [torch.from_numpy(x).cuda() for x in arrays], [out], compute)
    (wanted,) = evaluate(phif243.tape, arrays, {"f": np.float32, "d": np.float64}[compute])
    assert np.array_equal(out.cpu().numpy(), wanted.astype(dtype))


@gpu
def test_on_a_device_a_graph_can_be_captured():
    x = [torch.rand(1000, 4, device="cuda") + 1 for _ in range(6)]
    out, again = torch.empty(1000, 4, device="cuda"), torch.empty(1000, 4, device="cuda")
    launch(phif243.tape, 1000, x, [out], "f")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(phif243.tape, 1000, x, [again], "f")
    graph.replay()
    assert torch.equal(out, again)
