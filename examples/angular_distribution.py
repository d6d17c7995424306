"""Angular distributions of psi(2S) -> phi(1680) f0(1370) and phi(1680) f2(1270), their sum, and phase space.

    python examples/angular_distribution.py --output angular_distribution.png

What is computed, and why, is in docs/analysis.md. Needs matplotlib.
"""

import argparse
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import fastcov as fc
from fastcov import waves
from fastcov.phasespace import psi2s_kkpipi

PHI, F0, F2 = (1.68, 0.15), (1.35, 0.35), (1.275, 0.187)  # mass and width in GeV
COUPLINGS = {  # of waves normalised to 1 on phase space
    waves.phif001: 0.7,
    waves.phif021: 0.4 * np.exp(3.0j),
    waves.phif201: 1.0 * np.exp(2.5j),
    waves.phif221: 0.4,
    waves.phif222: 0.3 * np.exp(2.0j),
    waves.phif223: 0.3 * np.exp(2.5j),
    waves.phif243: 0.2,
}
PARTS = {"sum": slice(0, 7), "f0(1370)": slice(0, 2), "f2(1270)": slice(2, 7)}  # of the couplings
EDGES = np.linspace(-1, 1, 31)

Array = npt.NDArray[Any]


class Histogram(NamedTuple):
    """A density in cos(theta) and its statistical uncertainty, in units of the integral of the sum of all waves."""

    density: Array
    error: Array


@fc.fused
def kinematics(kp, km, pip, pim):
    """Squared masses of the two pairs, and the cosine of the helicity angle of the K+ and of the pi+."""
    phi, f = kp + km, pip + pim

    def cosine(pair, relative):
        axis = fc.einsum("mn,n->m", fc.transverse(pair), phi + f)
        r = fc.orbital(1, pair, relative)
        return fc.dot(r, axis) / fc.sqrt(fc.dot(r, r) * fc.dot(axis, axis))

    return fc.dot(phi, phi), fc.dot(f, f), cosine(phi, kp - km), cosine(f, pip - pim)


def breit_wigner(s: Array, mass: float, width: float) -> Array:
    return mass * width / (mass**2 - s - 1j * mass * width)


def distributions(events: int, seed: int = 0) -> dict[str, dict[str, Histogram]]:
    """The histograms in cos(theta) of "K+" and "pi+", of "phase space" and each of `PARTS`."""
    momenta = psi2s_kkpipi(events, seed)
    s_kk, s_pipi, cos_kaon, cos_pion = kinematics(*momenta)
    covariant = fc.bundle(*COUPLINGS)(*momenta, components="xy")

    phi, f0, f2 = breit_wigner(s_kk, *PHI), breit_wigner(s_pipi, *F0), breit_wigner(s_pipi, *F2)
    amplitudes = np.stack([phi * f0] * 2 + [phi * f2] * 5)[:, :, None] * covariant
    norms = np.sqrt(np.mean(np.sum(np.abs(amplitudes) ** 2, axis=2), axis=1))
    couplings = np.array([*COUPLINGS.values()]) / norms

    weights = {}
    for name, part in PARTS.items():
        amplitude = np.einsum("w,wnc->nc", couplings[part], amplitudes[part])
        weights[name] = np.sum(np.abs(amplitude) ** 2, axis=1)
    total = np.sum(weights["sum"])
    weights = {name: weight / total for name, weight in weights.items()}
    weights["phase space"] = np.full(events, 1 / events)
    return {
        particle: {name: histogram(cosine, weight) for name, weight in weights.items()}
        for particle, cosine in (("K+", cos_kaon), ("pi+", cos_pion))
    }


def histogram(cosine: Array, weights: Array) -> Histogram:
    width = np.diff(EDGES)
    total, _ = np.histogram(cosine, EDGES, weights=weights)
    squares, _ = np.histogram(cosine, EDGES, weights=weights**2)
    return Histogram(total / width, np.sqrt(squares) / width)


def plot(found: dict[str, dict[str, Histogram]], output: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    styles = {
        "phase space": {"color": "0.6", "linestyle": "--", "label": "phase space"},
        "f0(1370)": {"color": "tab:blue", "label": r"$\phi(1680)\,f_0(1370)$"},
        "f2(1270)": {"color": "tab:orange", "label": r"$\phi(1680)\,f_2(1270)$"},
        "sum": {"color": "black", "label": "coherent sum"},
    }
    titles = {"pi+": r"$\pi^+$ in the rest frame of $\pi^+\pi^-$", "K+": r"$K^+$ in the rest frame of $K^+K^-$"}
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
    centres = (EDGES[1:] + EDGES[:-1]) / 2
    for axis, (particle, title) in zip(axes, titles.items(), strict=True):
        for name, style in styles.items():
            density, error = found[particle][name]
            axis.stairs(density, EDGES, linewidth=1.5, **style)
            if name != "phase space":
                axis.errorbar(centres, density, error, fmt="none", ecolor=style["color"], elinewidth=1)
        axis.set(title=title, xlabel=r"$\cos\theta$ (helicity angle)", xlim=(-1, 1), ylim=(0, None))
    axes[0].set_ylabel(r"density in $\cos\theta$")
    axes[0].legend(frameon=False, loc="upper center", ncols=2)
    figure.savefig(output, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description="Plot angular distributions of psi(2S) -> K+ K- pi+ pi-.")
    parser.add_argument("--output", default="angular_distribution.png", help="the PNG file to write")
    parser.add_argument("--events", type=int, default=400_000, help="phase-space events")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    plot(distributions(arguments.events, arguments.seed), arguments.output)


if __name__ == "__main__":
    main()
