#!/usr/bin/env python3
"""Fits the polynomial of kernels/cpu/vec_math.h: e^r = 1 + r + r^2 q(r) on |r| <= ln 2 / 2, q of degree 4.

Remez exchange on the relative error, in double precision; then the coefficients are rounded to float32 from the lowest
degree up, refitting the rest each time. Prints the coefficients and the relative error of the rounded polynomial.
Needs python3-numpy.
"""

import numpy as np

DEGREE = 4
LIMIT = np.log(2) / 2 * 1.0001  # reduction itself rounds


def target(r):
    """q(r), by its series: (e^r - 1 - r) / r^2 cancels near zero."""
    term, total = 0.5, 0.0
    for k in range(2, 24):
        total = total + term * r ** (k - 2)
        term /= k + 1
    return total


def remez(fixed):
    """Coefficients of q, the first ones given, that minimise max |r^2 (q - target) / e^r|."""
    free = list(range(len(fixed), DEGREE + 1))
    known = lambda r: sum(c * r**k for k, c in enumerate(fixed))
    weight = lambda r: r**2 / np.exp(r)
    grid = np.linspace(-LIMIT, LIMIT, 20000)  # even: without r = 0, where the weight vanishes
    nodes = LIMIT * np.cos(np.pi * np.arange(len(free) + 1) / len(free))[::-1]
    nodes[np.abs(nodes) < 1e-3] = 1e-2
    for _ in range(60):
        matrix = np.array([[r**k for k in free] + [(-1) ** i / weight(r)] for i, r in enumerate(nodes)])
        solution = np.linalg.solve(matrix, target(nodes) - known(nodes))
        coefficients = list(fixed) + list(solution[:-1])
        error = weight(grid) * (sum(c * grid**k for k, c in enumerate(coefficients)) - target(grid))
        runs = np.split(np.arange(len(grid)), np.flatnonzero(np.diff(np.sign(error))) + 1)
        peaks = [run[np.argmax(np.abs(error[run]))] for run in runs]
        while len(peaks) > len(nodes):
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
        if len(peaks) < len(nodes):
            break
        nodes = grid[peaks]
    return coefficients, np.max(np.abs(error))


fixed = []
while len(fixed) <= DEGREE:
    coefficients, _ = remez(fixed)
    fixed.append(float(np.float32(coefficients[len(fixed)])))
    if len(fixed) == DEGREE + 1:
        break
grid = np.linspace(-LIMIT, LIMIT, 200000)
error = grid**2 * (sum(c * grid**k for k, c in enumerate(fixed)) - target(grid)) / np.exp(grid)
for k, c in enumerate(fixed):
    print(f"q{k} = {c.hex()}  {c!r}")
print(f"relative error {np.max(np.abs(error)):.3g} = {np.max(np.abs(error)) * 2**24:.3g} * 2^-24")
