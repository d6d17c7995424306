"""The operations of a tape: the one table that every executor implements.

An executor keeps scalar registers and 4-vector registers, the components of a vector in the order x, y, z, E. Each
operation is the IEEE expression written here, evaluated with its parentheses, each `+ - * /` and `sqrt` rounded once
and nothing contracted to a fused multiply-add; that is what makes all executors agree to the bit.

The kinds of an operand:  v vector register   s scalar register   k index of a constant   i index of an input
                          o index of an output   c component or row, 0 to 3
"""

from typing import NamedTuple


class Opcode(NamedTuple):
    number: int
    name: str
    result: str  # "v", "s", or "" for a store
    operands: str  # one letter each, see above
    flops: int
    meaning: str


OPCODES = tuple(
    Opcode(number, *row)
    for number, row in enumerate(
        (
            ("load_vector", "v", "i", 0, "input i"),
            ("load_scalar", "s", "i", 0, "input i"),
            ("constant", "s", "k", 0, "constant k, rounded to float64, then to the arithmetic type"),
            ("unit", "v", "c", 0, "1 in component c, 0 in the others"),
            ("add", "s", "ss", 1, "a + b"),
            ("sub", "s", "ss", 1, "a - b"),
            ("mul", "s", "ss", 1, "a * b"),
            ("div", "s", "ss", 1, "a / b"),
            ("reciprocal", "s", "s", 1, "1 / a"),
            ("sqrt", "s", "s", 1, "sqrt(a)"),
            ("neg", "s", "s", 0, "-a"),
            ("add_constant", "s", "sk", 1, "a + k"),
            ("mul_constant", "s", "sk", 1, "a * k"),
            ("vadd", "v", "vv", 4, "a_m + b_m"),
            ("vsub", "v", "vv", 4, "a_m - b_m"),
            ("vneg", "v", "v", 0, "-a_m"),
            ("vlower", "v", "v", 0, "-a_x, -a_y, -a_z, a_E"),
            ("vscale", "v", "sv", 4, "a * b_m"),
            ("vscale_constant", "v", "vk", 4, "a_m * k"),
            ("vadd_scaled", "v", "vsv", 8, "a_m + b * c_m"),
            ("vsub_scaled", "v", "vsv", 8, "a_m - b * c_m"),
            ("dot", "s", "vv", 7, "(aE*bE - az*bz) - (ax*bx + ay*by)"),
            (
                "cross",
                "v",
                "vvv",
                38,
                "upper components of epsilon_{mnrs} a^n b^r c^s with epsilon_{xyzE} = +1: from the minors "
                "m_ij = b_i*c_j - b_j*c_i (i before j in x, y, z, E): "
                "x = (az*m_yE - ay*m_zE) - aE*m_yz, y = (ax*m_zE - az*m_xE) + aE*m_xz, "
                "z = (ay*m_xE - ax*m_yE) - aE*m_xy, E = (ay*m_xz - ax*m_yz) - az*m_xy",
            ),
            ("component", "s", "vc", 0, "component c of a"),
            ("pack", "v", "ssss", 0, "the vector a, b, c, d"),
            ("store_scalar", "", "os", 0, "output o (added up where that output is summed)"),
            ("store_vector", "", "ov", 0, "output o"),
            ("store_row", "", "ocv", 0, "row c of the matrix that is output o"),
            ("project", "v", "vsv", 16, "a_m - s * c_m with s = ((cE*aE - cz*az) - (cx*ax + cy*ay)) * b"),
        )
    )
)

BY_NAME = {op.name: op for op in OPCODES}
