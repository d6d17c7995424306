# cython: language_level=3, cdivision=True
"""Tapes compiled for the CPU; see executor.h for how they run."""

import os

from numpy import dtype, empty, ndarray

from fastcov.cpu.threads import default_threads
from fastcov.opcodes import OPCODES
from fastcov.tape import RANKS

from cpython.buffer cimport (
    PyBUF_RECORDS,
    PyBUF_RECORDS_RO,
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_CheckSignals, PyErr_Clear
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

cdef extern from "executor.h" nogil:
    enum:
        BLOCK
        CHUNK
        LEVELS
        OPCODE_COUNT
        STRAIGHT_COUNT

    const char *OPCODE_NAMES[]
    const char *STRAIGHT_FINGERPRINTS[]

    ctypedef struct instruction:
        int32_t opcode
        int32_t result
        int32_t operands[4]

    ctypedef struct program:
        instruction *code
        double *constants_double
        float *constants_float
        int length
        int registers
        int sums
        int straight

    ctypedef struct column:
        char *data
        Py_ssize_t *strides
        int single

    ctypedef struct operand:
        column columns[4]
        int packed
        int order[4]
        int sum

    ctypedef struct job:
        const program *program
        operand *inputs
        operand *outputs
        int dims
        Py_ssize_t *shape
        Py_ssize_t events
        double *chunk_sums

    ctypedef struct instruction_set_t "instruction_set":
        const char *name

    const instruction_set_t INSTRUCTION_SETS[]
    int supported_sets()
    int run_chunks(const job *, Py_ssize_t first, Py_ssize_t end, const instruction_set_t *, int single, int threads)
    void collapse(job *, operand *, int count)
    void store_number(const column *, double value)
    void add_chunk(double *levels, const double *chunk, int sums, unsigned long long count)
    double finish_sum(const double *levels, int sums, int s, unsigned long long count)

# DLPack's array, and its table of functions that a type of arrays may have as `__dlpack_c_exchange_api__`.
cdef struct dlpack_array:
    void *data
    int32_t device_type
    int32_t device_number
    int32_t ndim
    uint8_t kind
    uint8_t bits
    uint16_t lanes
    int64_t *shape
    int64_t *strides  # in elements
    uint64_t offset

cdef struct dlpack_functions:
    uint32_t major
    uint32_t minor
    void *previous
    void *allocate
    void *export_managed
    void *import_managed
    int (*export)(void *, dlpack_array *) noexcept
    void *current_stream

cdef uint32_t DLPACK_MAJOR = 1
cdef int DLPACK_CPU = 1
cdef int DLPACK_FLOAT = 2

# In units of events times operations of the tape; one takes 0.1 to 0.3 ns. There is a further thread for every
# WORK_PER_THREAD of them: below that, waking it takes longer than it saves.
cdef double WORK_PER_THREAD = 500_000
cdef double WORK_BETWEEN_SIGNALS = 100_000_000

cdef Py_ssize_t MOST_REGISTERS = 4096
cdef Py_ssize_t MOST_EVENTS = 1 << 62
cdef Py_ssize_t MOST_CHUNKS = 4096  # between looks for a signal; bounds the memory for sums

cdef int MOST_THREADS = 2 * (os.cpu_count() or 1)  # more would only wait, and the system may refuse them

cdef tuple STORES = ("store_scalar", "store_vector", "store_row")
cdef tuple RESULT_SHAPES = ((), (4,), (4, 4))
cdef object FLOAT32 = dtype("float32")
cdef object FLOAT64 = dtype("float64")

if tuple(OPCODE_NAMES[n].decode() for n in range(OPCODE_COUNT)) != tuple(op.name for op in OPCODES):
    raise ImportError("fastcov.cpu._executor was built for other opcodes than fastcov.opcodes lists; build it again")

cdef dict STRAIGHT = {STRAIGHT_FINGERPRINTS[n].decode(): n for n in range(STRAIGHT_COUNT)}

cdef int _set = 0
cdef bint _forked = False


def _after_fork():
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def instruction_sets():
    """Return the names of the instruction sets that this build and this processor have, the best one last."""
    return tuple(INSTRUCTION_SETS[n].name.decode() for n in range(supported_sets()))


def instruction_set(name=None):
    """Return the instruction set in use, after changing it to `name` if one is given.

    Raises ValueError for one that is not in `instruction_sets()`.
    """
    global _set
    names = instruction_sets()
    if name is not None:
        if name not in names:
            raise ValueError(f"instruction set {name!r} is not one of {', '.join(names)}")
        _set = names.index(name)
    return names[_set]


try:
    instruction_set(os.environ.get("FASTCOV_ISA", instruction_sets()[-1]))
except ValueError as error:
    raise ImportError(f"FASTCOV_ISA: {error}") from None


cdef void *_allocate(size_t count, size_t size) except NULL:
    cdef void *memory = calloc(count if count else 1, size)
    if memory == NULL:
        raise MemoryError
    return memory


cdef class Program:
    """A tape compiled for this machine: immutable, and several threads may run it at once.

    Tapes of `fastcov.shipped` run as straight-line code, with the same bits, except where `interpret` asks for the
    interpreter. Raises ValueError for a tape with an opcode, register or index out of range.
    """

    cdef readonly object tape
    cdef program program
    cdef int inputs, outputs, rows
    cdef int *input_width
    cdef int *input_shared  # whether it is one number for all events
    cdef int *output_rank
    cdef int *output_row  # the first row of each output among all rows
    cdef int *output_sum  # the first of its numbers in the sums, or -1
    cdef readonly bint compiled  # whether there is straight-line code for this tape, for some instruction set
    cdef bint interpret
    cdef list input_names, output_names

    def __cinit__(self, tape, bint interpret=False):
        cdef int n
        self.tape = tape
        self.inputs, self.outputs = len(tape.inputs), len(tape.outputs)
        self.input_names = [f"input {one.name}" for one in tape.inputs]
        self.output_names = [f"output {n}" for n in range(self.outputs)]
        self.input_width = <int *>_allocate(self.inputs, sizeof(int))
        self.input_shared = <int *>_allocate(self.inputs, sizeof(int))
        for n, one in enumerate(tape.inputs):
            self.input_shared[n] = one.shared
            self.input_width[n] = 4 if one.kind == "vector" else 1
        self.output_rank = <int *>_allocate(self.outputs, sizeof(int))
        self.output_row = <int *>_allocate(self.outputs, sizeof(int))
        self.output_sum = <int *>_allocate(self.outputs, sizeof(int))
        for n, out in enumerate(tape.outputs):
            self.output_rank[n] = RANKS[out.kind]
            self.output_row[n] = self.rows
            self.output_sum[n] = self.program.sums if out.summed else -1
            self.rows += 4 if self.output_rank[n] == 2 else 1
            if out.summed:
                self.program.sums += 1 << 2 * self.output_rank[n]
        if not (0 <= tape.vectors <= MOST_REGISTERS and 0 <= tape.scalars <= MOST_REGISTERS):
            raise ValueError(f"tape: {tape.vectors} vector and {tape.scalars} scalar registers")
        self.program.registers = 4 * <int>tape.vectors + <int>tape.scalars
        self.program.constants_double = <double *>_allocate(len(tape.constants), sizeof(double))
        self.program.constants_float = <float *>_allocate(len(tape.constants), sizeof(float))
        for n, constant in enumerate(tape.constants):
            self.program.constants_double[n] = float(constant)
            self.program.constants_float[n] = <float>self.program.constants_double[n]
        self.program.length = len(tape.code)
        self.program.code = <instruction *>_allocate(self.program.length, sizeof(instruction))
        limits = {
            "v": tape.vectors,
            "s": tape.scalars,
            "k": len(tape.constants),
            "i": self.inputs,
            "o": self.outputs,
            "c": 4,
        }
        for n, row in enumerate(tape.code):
            self._compile(&self.program.code[n], row, limits)
        self.interpret = interpret
        self.program.straight = -1 if interpret else STRAIGHT.get(tape.fingerprint, -1)
        self.compiled = self.program.straight >= 0

    cdef int _compile(self, instruction *target, tuple row, dict limits) except -1:
        cdef int n, x, place
        if not row or not 0 <= row[0] < OPCODE_COUNT:
            raise ValueError(f"tape: unknown opcode in {list(row)}")
        op = OPCODES[row[0]]
        kinds = op.result + op.operands
        if len(row) != 1 + len(kinds):
            raise ValueError(f"tape: {op.name} takes {len(op.operands)} operands, not as in {list(row)}")
        target.opcode = op.number
        for n, kind in enumerate(kinds):
            x = row[n + 1]
            if not 0 <= x < limits[kind]:
                raise ValueError(f"tape: {kind}{x} is out of range in {op.name}")
            if kind == "i" and self.input_width[x] != (4 if op.result == "v" else 1):
                raise ValueError(f"tape: {op.name} of input {x}")
            if kind == "o":
                if op.name != STORES[self.output_rank[x]]:
                    raise ValueError(f"tape: {op.name} to output {x}")
                x = self.output_row[x]
            elif kind == "v":
                x *= 4 * BLOCK
            elif kind == "s":
                x = (4 * <int>limits["v"] + x) * BLOCK
            place = n - len(op.result)
            if place < 0:
                target.result = x
            else:
                target.operands[place] = x
        return 0

    def __dealloc__(self):
        free(self.program.code)
        free(self.program.constants_double)
        free(self.program.constants_float)
        free(self.input_width)
        free(self.input_shared)
        free(self.output_rank)
        free(self.output_row)
        free(self.output_sum)

    def __reduce__(self):
        return Program, (self.tape, self.interpret)

    def run(self, tuple shape, inputs, input_axes, outputs, output_axes, str compute="d", threads=None):
        """Run the tape for all events of `shape` and store into `outputs`.

        inputs: per vector input one array (..., 4) or a tuple of four arrays (...), per scalar input an array (...)
            or a float; float32 or float64 at any address, leading shapes broadcast against `shape` by stride 0.
        input_axes: where x, y, z and E stand along the last axis or among the four arrays.
        outputs: arrays, float32 or float64: per event a scalar (*shape), a vector (*shape, m), a matrix
            (*shape, m, m); summed over events the same without `shape`.
        output_axes: where x, y, z and E go along the last axis, or -1 for a component that is not stored.
        compute: "d" or "f", the arithmetic type. Sums over events are float64.
        threads: at most so many, fewer for little work; `default_threads()` when None.

        Raises TypeError or ValueError, naming the array, for what does not fit.
        """
        cdef _Call call = _Call.__new__(_Call, self)
        cdef int axes[4]
        cdef int n
        if compute not in ("d", "f"):
            raise ValueError(f"compute = {compute!r} is neither 'd' nor 'f'")
        if threads is not None and threads < 1:
            raise ValueError(f"threads = {threads} is not positive")
        if len(inputs) != self.inputs:
            raise ValueError(f"{self.inputs} inputs expected, {len(inputs)} given")
        if len(outputs) != self.outputs:
            raise ValueError(f"{self.outputs} outputs expected, {len(outputs)} given")
        if sorted(input_axes) != [0, 1, 2, 3]:
            raise ValueError(f"input axes {input_axes} are no permutation of 0, 1, 2, 3")
        _read_axes(axes, input_axes)
        for n in range(self.inputs):
            call.take_input(n, inputs[n])
        call.set_shape(shape)
        for n in range(self.inputs):
            call.place_input(n, axes)
        stored = sorted(axis for axis in output_axes if axis != -1)
        if len(output_axes) != 4 or not stored or stored != list(range(len(stored))):
            raise ValueError(f"output axes {output_axes} are no places 0, 1, ... and -1 of x, y, z, E")
        _read_axes(axes, output_axes)
        for n in range(self.outputs):
            call.place_output(n, outputs[n], axes, len(stored))
        call.execute(compute == "f", threads)

    def call(self, tuple inputs):
        """Run the tape on the usual kind of arrays and return the tuple of outputs, or None for any other kind.

        The usual kind: vectors are arrays (N, 4), or (4,) for all events, scalars are floats or arrays (N,) or (), of
        which those that the tape declares shared are (), all of the same native dtype, float32 or float64, at least one
        of them with events. All arrays are ndarrays, or all are of one library whose arrays have DLPack's
        `__dlpack_c_exchange_api__`: what that shows of their memory is taken as it is. Computed in float64; the outputs,
        sums too, are ndarrays of the inputs' dtype.
        """
        cdef _Call call
        cdef Py_ssize_t events = -1
        cdef Py_buffer *view
        cdef const dlpack_functions *functions
        cdef const dlpack_functions *library = NULL
        cdef int n, width, single = -1
        cdef int axes[4]
        if len(inputs) != self.inputs:
            return None
        call = _Call.__new__(_Call, self)
        for n in range(self.inputs):
            value = inputs[n]
            width = self.input_width[n]
            if width == 1 and PyFloat_CheckExact(value):
                call.take_input(n, value)
                continue
            functions = NULL
            if type(value) is not ndarray:
                functions = _dlpack_functions(type(value))
                if functions == NULL or not call.take_exported(n, value, functions):
                    return None
            elif value.dtype is FLOAT64 or value.dtype is FLOAT32:
                call.take_input(n, value)
            else:
                return None
            view = &call.views[4 * n]
            if single < 0:
                single = view.itemsize == 4
                library = functions
            elif single != (view.itemsize == 4) or functions != library:
                return None
            if width == 4 and (view.ndim == 0 or view.shape[view.ndim - 1] != 4):
                return None
            if view.ndim == (2 if width == 4 else 1) and not self.input_shared[n]:
                if events < 0:
                    events = view.shape[0]
                elif events != view.shape[0]:
                    return None
            elif view.ndim != (1 if width == 4 else 0):
                return None
        if events < 0:
            return None
        call.set_shape((events,))
        for n in range(4):
            axes[n] = n
        for n in range(self.inputs):
            call.place_input(n, axes)
        results = []
        for n in range(self.outputs):
            shape = RESULT_SHAPES[self.output_rank[n]]
            result = empty(shape if self.output_sum[n] >= 0 else (events,) + shape, FLOAT32 if single else FLOAT64)
            call.place_output(n, result, axes, 4)
            results.append(result)
        call.execute(False, None)
        return tuple(results)


cdef const dlpack_functions *_dlpack_functions(kind) except? NULL:
    """DLPack's table of a type, or NULL where it has none of the version known here."""
    cdef const dlpack_functions *found
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return NULL
    found = <const dlpack_functions *>PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
    return found if found.major == DLPACK_MAJOR and found.export != NULL else NULL


cdef int _read_axes(int *target, axes) except -1:
    cdef int m
    for m in range(4):
        target[m] = axes[m]
    return 0


cdef int _single(Py_buffer *view, str name) except -1:
    """Whether the array is float32 rather than float64."""
    cdef const char *code = view.format
    if code != NULL and code[0] == c"=":  # at an address that is no multiple of the size
        code += 1
    if code != NULL and code[1] == 0 and code[0] in b"df":
        return code[0] == c"f"
    raise TypeError(f"{name}: elements are neither native float32 nor native float64")


cdef class _Call:
    """One run of a program: the arrays it holds on to, and where they are."""

    cdef Program program
    cdef Py_buffer *views  # four for each input, one for each output
    cdef double *numbers  # inputs that are Python floats
    cdef Py_ssize_t *exported  # shape and strides, two each, of every input that came by DLPack
    cdef operand *operands
    cdef Py_ssize_t *strides
    cdef job job
    cdef int dims  # of the shape given, which may be 0

    def __cinit__(self, Program program):
        self.program = program
        self.views = <Py_buffer *>_allocate(4 * program.inputs + program.outputs, sizeof(Py_buffer))
        self.numbers = <double *>_allocate(program.inputs, sizeof(double))
        self.exported = <Py_ssize_t *>_allocate(4 * program.inputs, sizeof(Py_ssize_t))
        self.operands = <operand *>_allocate(program.inputs + program.rows, sizeof(operand))
        self.job.program = &program.program
        self.job.inputs = self.operands
        self.job.outputs = self.operands + program.inputs

    def __dealloc__(self):
        cdef int n
        if self.views != NULL:
            for n in range(4 * self.program.inputs + self.program.outputs):
                PyBuffer_Release(&self.views[n])
        free(self.views)
        free(self.numbers)
        free(self.exported)
        free(self.operands)
        free(self.strides)
        free(self.job.chunk_sums)

    cdef int take_input(self, int n, object value) except -1:
        cdef Py_buffer *view = &self.views[4 * n]
        cdef int m
        if self.program.input_width[n] == 4 and type(value) is tuple:
            if len(value) != 4:
                raise ValueError(f"{self.program.input_names[n]}: a tuple of {len(value)}, not of four columns")
            for m in range(4):
                self.take(&view[m], value[m], PyBUF_RECORDS_RO, self.program.input_names[n])
        elif self.program.input_width[n] == 1 and PyFloat_CheckExact(value):
            self.numbers[n] = PyFloat_AS_DOUBLE(value)
        else:
            self.take(view, value, PyBUF_RECORDS_RO, self.program.input_names[n])
        return 0

    cdef int take(self, Py_buffer *view, object value, int flags, str name) except -1:
        try:
            PyObject_GetBuffer(value, view, flags)
        except (BufferError, TypeError, ValueError) as error:
            raise TypeError(f"{name}: {error}") from None
        return 0

    cdef bint take_exported(self, int n, object value, const dlpack_functions *functions) except -1:
        """Take the memory of an array that DLPack shows; whether it is on the CPU, float32 or float64 and of few axes."""
        cdef Py_buffer *view = &self.views[4 * n]
        cdef dlpack_array array
        cdef int d
        if functions.export(<void *>value, &array) != 0:
            PyErr_Clear()
            return False
        if array.device_type != DLPACK_CPU or array.data == NULL or array.strides == NULL or array.ndim > 2:
            return False
        if array.kind != DLPACK_FLOAT or array.lanes != 1 or array.bits not in (32, 64):
            return False
        PyBuffer_FillInfo(view, value, <char *>array.data + array.offset, 0, True, PyBUF_SIMPLE)
        view.itemsize = array.bits // 8
        view.format = "f" if array.bits == 32 else "d"
        view.ndim = array.ndim
        view.shape = self.exported + 4 * n
        view.strides = view.shape + 2
        for d in range(array.ndim):
            view.shape[d] = array.shape[d]
            view.strides[d] = array.strides[d] * view.itemsize
        return True

    cdef int set_shape(self, tuple shape) except -1:
        cdef int n, m, d
        cdef int operands = self.program.inputs + self.program.rows
        cdef Py_ssize_t size
        self.dims = len(shape)
        self.job.dims = self.dims if self.dims else 1
        self.strides = <Py_ssize_t *>_allocate((4 * operands + 1) * self.job.dims, sizeof(Py_ssize_t))
        for n in range(operands):
            self.operands[n].sum = -1
            for m in range(4):
                self.operands[n].columns[m].strides = self.strides + (4 * n + m) * self.job.dims
        self.job.shape = self.strides + 4 * operands * self.job.dims
        self.job.shape[0] = 1
        self.job.events = 0 if 0 in shape else 1
        for d in range(self.dims):
            size = shape[d]
            if size < 0:
                raise ValueError(f"shape {shape} has a negative number")
            if self.job.events and size > MOST_EVENTS // self.job.events:
                raise ValueError(f"shape {shape} has too many events")
            self.job.shape[d] = size
            self.job.events *= size
        return 0

    cdef int place(self, column *c, Py_buffer *view, int leading, Py_ssize_t offset, str name) except -1:
        """Let the column walk through the first `leading` dimensions of the array, broadcast to the common shape."""
        cdef int d, missing = self.dims - leading
        if missing < 0:
            self.misfit(view, name)
        for d in range(leading):
            if view.shape[d] == self.job.shape[missing + d]:
                c.strides[missing + d] = view.strides[d]
            elif view.shape[d] != 1:
                self.misfit(view, name)
        c.data = <char *>view.buf + offset
        c.single = _single(view, name)
        return 0

    cdef int misfit(self, Py_buffer *view, str name) except -1:
        shape = tuple(view.shape[d] for d in range(view.ndim))
        events = tuple(self.job.shape[d] for d in range(self.dims))
        raise ValueError(f"{name}: shape {shape} does not fit events of shape {events}")

    cdef void note_packed(self, operand *target, Py_ssize_t stride, int *axes) noexcept:
        """Remember that the components of an event are neighbours in memory."""
        cdef int m
        if stride == (4 if target.columns[0].single else 8):
            target.packed = 1
            for m in range(4):
                target.order[axes[m]] = m

    cdef int place_input(self, int n, int *axes) except -1:
        cdef operand *target = &self.job.inputs[n]
        cdef Py_buffer *view = &self.views[4 * n]
        cdef int m, last = view.ndim - 1
        name = self.program.input_names[n]
        if <void *>view.obj == NULL:
            target.columns[0].data = <char *>&self.numbers[n]
        elif self.program.input_width[n] == 1:
            self.place(&target.columns[0], view, view.ndim, 0, name)
        elif <void *>view[1].obj != NULL:
            for m in range(4):
                self.place(&target.columns[m], &view[axes[m]], view[axes[m]].ndim, 0, name)
        else:
            if last < 0 or view.shape[last] != 4:
                raise ValueError(f"{name}: the last axis is not of length 4")
            for m in range(4):
                self.place(&target.columns[m], view, last, axes[m] * view.strides[last], name)
            self.note_packed(target, view.strides[last], axes)
        return 0

    cdef int place_output(self, int n, object value, int *axes, int stored) except -1:
        cdef Py_buffer *view = &self.views[4 * self.program.inputs + n]
        cdef int own = self.program.output_rank[n]
        cdef int leading, d, row, m
        cdef bint summed = self.program.output_sum[n] >= 0
        cdef operand *target
        name = self.program.output_names[n]
        self.take(view, value, PyBUF_RECORDS, name)
        leading = view.ndim - own
        if leading != (0 if summed else self.dims):
            self.misfit(view, name)
        for d in range(leading):
            if view.shape[d] != self.job.shape[d]:
                self.misfit(view, name)
        for d in range(leading, view.ndim):
            if view.shape[d] != stored:
                raise ValueError(f"{name}: {view.shape[d]} components along an axis, not {stored}")
        for row in range(4 if own == 2 else 1):
            target = &self.job.outputs[self.program.output_row[n] + row]
            if summed:
                target.sum = self.program.output_sum[n] + 4 * row
            if own == 0:
                self.place(&target.columns[0], view, leading, 0, name)
            elif own == 1 or axes[row] >= 0:
                for m in range(4):
                    if axes[m] >= 0:
                        self.place(
                            &target.columns[m],
                            view,
                            leading,
                            axes[m] * view.strides[view.ndim - 1]
                            + (axes[row] * view.strides[leading] if own == 2 else 0),
                            name,
                        )
                if stored == 4:
                    self.note_packed(target, view.strides[view.ndim - 1], axes)
        return 0

    cdef int execute(self, bint single, threads) except -1:
        cdef int count = 1, failed = 0, sums = self.program.program.sums
        cdef Py_ssize_t chunks = (self.job.events + CHUNK - 1) // CHUNK
        cdef Py_ssize_t first, end, segment, c
        cdef double work = <double>self.job.events * self.program.program.length
        cdef const instruction_set_t *chosen = &INSTRUCTION_SETS[_set]
        cdef double *levels = NULL
        if work >= 2 * WORK_PER_THREAD and not _forked:
            count = min(default_threads() if threads is None else threads, MOST_THREADS, chunks, work / WORK_PER_THREAD)
        segment = max(1, min(chunks, MOST_CHUNKS, <Py_ssize_t>(WORK_BETWEEN_SIGNALS * count / (work + 1) * chunks)))
        collapse(&self.job, self.operands, self.program.inputs + self.program.rows)
        if sums:
            self.job.chunk_sums = <double *>_allocate((segment + LEVELS) * sums, sizeof(double))
            levels = self.job.chunk_sums + segment * sums
        for first in range(0, chunks, segment):
            end = min(first + segment, chunks)
            with nogil:
                failed = run_chunks(&self.job, first, end, chosen, single, count)
                if sums:
                    for c in range(first, end):
                        add_chunk(levels, self.job.chunk_sums + (c - first) * sums, sums, c)
            if failed:
                raise MemoryError
            if end < chunks:
                PyErr_CheckSignals()
        if sums:
            self.store_sums(levels, chunks)
        return 0

    cdef void store_sums(self, double *levels, Py_ssize_t chunks) noexcept:
        cdef int row, m
        cdef operand *target
        cdef double total
        for row in range(self.program.rows):
            target = &self.job.outputs[row]
            for m in range(4):
                if target.sum >= 0 and target.columns[m].data != NULL:
                    total = finish_sum(levels, self.program.program.sums, target.sum + m, chunks)
                    store_number(&target.columns[m], total)
