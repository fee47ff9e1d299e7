"""Polynomials of SymPy come back over the field that they were over."""

from __future__ import annotations

import pytest

from saved_state_roundtrip import of_user

sympy = pytest.importorskip("sympy", reason="pip install sympy to check its polynomials")
X, Y = sympy.symbols("x y")
POLYNOMIALS = {
    "modulo 5": sympy.Poly(X**2 + 3, modulus=5),
    "modulo 5, not around 0": sympy.Poly(X**2 + 3, modulus=5, symmetric=False),
    "over GF(7), of two": sympy.Poly(X * Y + 3, X, Y, domain=sympy.GF(7)),
    "0 modulo 5": sympy.Poly(0, X, modulus=5),
    "with a root": sympy.Poly(X**2 + sympy.sqrt(2) * X, X, extension=True),
    "with two roots": sympy.Poly(X**2 + sympy.sqrt(2) * X + sympy.sqrt(3), X, extension=[sympy.sqrt(2), sympy.sqrt(3)]),
    "over more than it needs": sympy.Poly(X**2 - 2, X, extension=sympy.sqrt(2)),
    "of integers": sympy.Poly(X**2 + 3),
    "of fractions": sympy.Poly(X / 3),
    "of numbers": sympy.Poly(X**2 + 0.5, X, domain="RR"),
    "in another one": sympy.Poly(X * Y + 1, X, domain=sympy.ZZ[Y]),
    "of complex integers": sympy.Poly(X**2 + sympy.I * X, X, extension=True),
}


@pytest.mark.parametrize("which", POLYNOMIALS)
def test_a_polynomial_is_over_the_same_field(which):
    polynomial = POLYNOMIALS[which]
    back = of_user({"p": polynomial}).namespace["p"]
    assert back == polynomial
    assert (back.get_domain(), back.gens, str(back)) == (polynomial.get_domain(), polynomial.gens, str(polynomial))
