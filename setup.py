"""Build of the compiled module; everything else is in pyproject.toml.

FASTCOV_SANITIZE=address,undefined builds it with those sanitizers, for one instruction set only.
FASTCOV_STRAIGHT="phif021,phif021 vjp" builds straight-line code for these functions only, in a fraction of the time.
"""

import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
HEADERS = ("executor", "instruction_set", "block", "memory", "straight_line", "opcodes", "straight")
STRICT_IEEE = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]

OPENMP_PROBE = """
#include <omp.h>
int main(void) {
    int threads = 0;
#pragma omp parallel reduction(+ : threads)
    threads += 1;
    return omp_get_max_threads() < threads;
}
"""

MULTIVERSION_PROBE = """
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("arch=x86-64-v4"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#endif
typedef double lanes __attribute__((vector_size(64)));
static void add(lanes *a, const lanes *b) { *a += *b; }
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
int main(void) {
    lanes a = {0}, b = {0};
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v3") && __builtin_cpu_supports("x86-64-v4"))
        add(&a, &b);
    return 0;
}
"""


def write_opcodes() -> None:
    """Write fastcov/opcodes.py as a C header; the enum makes the compiler check that each opcode is implemented."""
    names = [op.name for op in runpy.run_path(str(ROOT / "fastcov" / "opcodes.py"))["OPCODES"]]
    enum = ", ".join(f"OP_{name}" for name in names)
    strings = ", ".join(f'"{name}"' for name in names)
    text = (
        "/* Written by setup.py from fastcov/opcodes.py. */\n"
        f"enum opcode {{ {enum} }};\n"
        f"enum {{ OPCODE_COUNT = {len(names)} }};\n"
        f"static const char *const OPCODE_NAMES[] = {{{strings}}};\n"
    )
    header = ROOT / "cpu" / "opcodes.h"
    if not header.exists() or header.read_text() != text:
        header.write_text(text)


def write_straight() -> None:
    """Write the shipped tapes as straight-line C; a process of its own imports the package from here."""
    header = ROOT / "cpu" / "straight.h"
    new = header.with_suffix(".new")
    names = filter(None, os.environ.get("FASTCOV_STRAIGHT", "").split(","))
    emit = ROOT / "cpu" / "codegen" / "emit.py"
    subprocess.run([sys.executable, str(emit), str(new), *names], check=True)
    if header.exists() and header.read_text() == new.read_text():
        new.unlink()
    else:
        new.replace(header)


class BuildExecutor(build_ext):
    def build_extensions(self) -> None:
        write_opcodes()
        write_straight()
        [extension] = self.extensions
        sanitizers = os.environ.get("FASTCOV_SANITIZE")
        if sanitizers:
            extension.extra_compile_args = ["-O1", "-g", f"-fsanitize={sanitizers}", "-fno-omit-frame-pointer"]
            extension.extra_link_args = [f"-fsanitize={sanitizers}"]
        else:
            # What is hot is written in vectors: -O3 gains nothing, and takes five times as long over straight.h.
            extension.extra_compile_args = ["-O2", "-fpeel-loops", "-fvect-cost-model=dynamic"]
            if self.links(MULTIVERSION_PROBE):
                extension.define_macros.append(("FASTCOV_MULTIVERSION", "1"))
        extension.extra_compile_args += STRICT_IEEE
        if self.links(OPENMP_PROBE, "-fopenmp"):
            extension.extra_compile_args.append("-fopenmp")
            extension.extra_link_args.append("-fopenmp")
        super().build_extensions()

    def links(self, program: str, *options: str) -> bool:
        """Whether the compiler builds this program."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "probe.c"
            source.write_text(program)
            try:
                objects = self.compiler.compile([str(source)], output_dir="/", extra_postargs=list(options))
                self.compiler.link_executable(objects, str(Path(folder) / "probe"), extra_postargs=list(options))
            except Exception as error:
                print(f"probe failed: {error}", file=sys.stderr)
                return False
        return True


setup(
    packages=["fastcov", "fastcov.kernels", "fastcov.cpu"],
    package_dir={"fastcov.kernels": "kernels", "fastcov.cpu": "cpu"},
    package_data={"fastcov": ["posted_permutations.json", "py.typed"]},
    include_package_data=False,
    ext_modules=[
        Extension(
            "fastcov.cpu._executor",
            ["cpu/_executor.pyx"],
            include_dirs=["cpu"],
            depends=[f"cpu/{name}.h" for name in HEADERS],
        )
    ],
    cmdclass={"build_ext": BuildExecutor},
)
