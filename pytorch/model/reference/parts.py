"""The parts of a graph in float64. Each takes exact inputs, rows (T, ...) of tokens, and returns values and bounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tritmark.torch.model.reference.rounding import FLOAT32, FUNCTION, ULP, Bounded, ProductArithmetic, Rounding, gamma
from tritmark.torch.model.reference.tensors import Floats, Matrix

_LEAST = 1e-5
"""The least magnitude that activations are scaled by (activation_quantize)."""
_ATTENTION_EXP = 20 * ULP
"""exp_u20 of ATen (cpu/vec), which its attention on the CPU uses: 20 units in the last place."""


def norm(x: Floats, weight: Floats, eps: float, r: Rounding) -> Bounded:
    """RMS norm (..., K): float32 up to the rounding to the dtype, then times the weight."""
    K = x.shape[-1]
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight
    relative = gamma(K + 3, FLOAT32) / 2 + FUNCTION + gamma(2, FLOAT32) + gamma(2, r.u)
    return Bounded(y, relative * np.abs(y) + r.tiny)


def quantized(x: Floats, codes_error: float) -> tuple[Floats, Floats]:
    """Activations after their quantization to int8 in rows, and how far a code that a rounding moves takes each."""
    scale = 127 / np.maximum(np.abs(x).max(-1, keepdims=True), _LEAST)
    exact = x * scale
    off = codes_error * np.abs(exact)
    codes = np.rint(exact)
    moved = np.maximum(np.rint(exact + off) - codes, codes - np.rint(exact - off))
    return codes / scale, moved / scale


def product_values(x: Floats, weights: Matrix, quantizes: bool) -> Floats:
    """x @ W.T (..., N), without bounds."""
    y: Floats = (quantized(x, 0)[0] if quantizes else x) @ weights.values.T
    return y if weights.bias is None else y + weights.bias


def product(x: Floats, weights: Matrix, how: ProductArithmetic, r: Rounding) -> Bounded:
    """x @ W.T (..., N), with activations as the arithmetic quantizes them."""
    moved: Floats | None = None
    if how.quantized:
        x, moved = quantized(x, how.codes)
    y = x @ weights.values.T
    magnitudes = np.abs(x) @ np.abs(weights.values).T
    if weights.bias is not None:
        y, magnitudes = y + weights.bias, magnitudes + np.abs(weights.bias)
    bound = how.term * magnitudes + r.tiny
    if moved is not None and moved.any():
        bound += moved @ np.abs(weights.values).T
    if weights.error is not None:
        bound += np.abs(x) @ weights.error.T
    return Bounded(y, bound + how.total * (np.abs(y) + bound))


def angles(positions: Floats, theta: float, size: int) -> tuple[Floats, Floats]:
    """The angles of rope (..., size), and their bounds: float32 powers and products."""
    exponents = np.arange(0, size, 2) / size
    turned = positions[..., None] * theta**-exponents
    relative = (np.log(theta) * exponents + 4) * FLOAT32 + FUNCTION
    return np.concatenate([turned, turned], -1), np.concatenate([turned * relative] * 2, -1)


def rope_table(positions: Floats, theta: float, size: int, r: Rounding) -> tuple[Bounded, Bounded]:
    """Cosines and sines (..., size) of the angles of rope."""
    turned, off = angles(positions, theta, size)
    made = []
    for values in (np.cos(turned), np.sin(turned)):
        made.append(Bounded(values, off + (FUNCTION + r.u) * np.abs(values) + FLOAT32))
    return made[0], made[1]


def swapped(x: Floats, *, interleaved: bool = False) -> Floats:
    """What rope adds with the sine: (-second half, first half), or in pairs of neighbours."""
    if interleaved:
        return np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], -1)


def turned(x: Floats, cos: Floats, sin: Floats, r: Rounding) -> Bounded:
    """Queries or keys after rope: x * cos + swapped(x) * sin."""
    first, second = x * cos, swapped(x) * sin
    return Bounded(first + second, gamma(2, r.u) * (np.abs(first) + np.abs(second)) + r.tiny)


def attention_values(q: Floats, k: Floats, v: Floats, visible: NDArray[np.bool_]) -> Floats:
    """softmax(q k / sqrt(D)) v, (T, H, D) from q (T, H, D), k and v (L, G, D); `visible` (T, L) is the mask."""
    shares, v = _shares(q, k, v, visible)
    return (shares @ v).transpose(1, 0, 2)


def _shares(q: Floats, k: Floats, v: Floats, visible: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Shares (H, T, L), and values (H, L, D): each head of keys serves several of queries in sequence."""
    k, v = (np.repeat(each, q.shape[1] // each.shape[1], axis=1).transpose(1, 0, 2) for each in (k, v))
    scores = q.transpose(1, 0, 2) @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    return _softmax(np.where(visible, scores, -np.inf)), v


def _softmax(scores: Floats) -> Floats:
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    found: Floats = shares / shares.sum(-1, keepdims=True)
    return found


def attention(q: Floats, k: Floats, v: Floats, visible: NDArray[np.bool_], r: Rounding) -> Bounded:
    """attention_values with bounds."""
    shares, values = _shares(q, k, v, visible)
    D, L = q.shape[-1], len(k)
    keys = np.repeat(np.abs(k), q.shape[1] // k.shape[1], axis=1).transpose(1, 2, 0)
    off = np.abs(q).transpose(1, 0, 2) @ keys / np.sqrt(D) * (gamma(D, FLOAT32) + gamma(3, r.u))
    # A shift of scores by at most d moves each share by at most e^(2 d).
    most = np.where(visible, off, 0).max(-1, keepdims=True)
    relative = np.expm1(2 * most) + gamma(2 * L + 4, FLOAT32) + 2 * _ATTENTION_EXP + gamma(3, r.u)
    out, magnitudes = shares @ values, shares @ np.abs(values)
    # A share below the smallest number is 0.
    lost = r.tiny * (1 + np.abs(values).sum(-2, keepdims=True))
    bound = relative * magnitudes + r.u * np.abs(out) + lost
    return Bounded(out.transpose(1, 0, 2), bound.transpose(1, 0, 2))


def activated(gate: Floats, kind: str) -> Floats:
    """The activation function: relu2, silu; gelu for faults."""
    if kind == "relu2":
        return np.square(np.maximum(gate, 0))
    found: Floats
    if kind == "silu":
        found = gate / (1 + np.exp(-np.clip(gate, -700, None)))
    else:
        from scipy.special import erf

        found = gate * (1 + erf(gate / np.sqrt(2))) / 2
    return found


def gated(gate: Bounded, up: Bounded, kind: str, r: Rounding) -> Bounded:
    """activation(gate) * up, of inputs that may be off themselves. The slope of silu is at most 1.1."""
    act = activated(gate.values, kind)
    moved = 2 * (np.abs(gate.values) + gate.bound) * gate.bound if kind == "relu2" else 1.1 * gate.bound
    moved = moved + (2 * FUNCTION + gamma(3, FLOAT32) + r.u) * np.abs(act) + r.tiny
    y = act * up.values
    bound = moved * (np.abs(up.values) + up.bound) + np.abs(act) * up.bound + r.u * np.abs(y) + r.tiny
    return Bounded(y, bound)


def exact(x: Floats) -> Bounded:
    """Values without an error."""
    return Bounded(x, np.zeros_like(x))


def added(x: Floats, y: Floats, r: Rounding) -> Bounded:
    """A residual sum, rounded once."""
    return Bounded(x + y, r.u * np.abs(x + y) + r.tiny)


def gate_values(logits: Floats, chosen: NDArray[np.int64], normed: bool) -> Floats:
    """The weights (T, k) of the chosen experts, from the router's logits (T, E)."""
    found = np.take_along_axis(_softmax(logits), chosen, -1)
    return found / found.sum(-1, keepdims=True) if normed else found


def gates(logits: Floats, chosen: NDArray[np.int64], normed: bool, r: Rounding) -> Bounded:
    """gate_values with bounds."""
    found = gate_values(logits, chosen, normed)
    n = logits.shape[-1] + 2 * chosen.shape[-1] + 6
    largest = float(np.abs(logits).max(initial=0))
    relative = gamma(n, FLOAT32) + 2 * FUNCTION + gamma(2, FLOAT32) * largest + gamma(2, r.u)
    return Bounded(found, relative * found + r.tiny)


def badly_chosen(logits: Floats, chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tokens (T,) whose chosen experts (T, k) are not those of the largest logits; equal after rounding counts."""
    k = chosen.shape[-1]
    unique = np.array([len(set(each.tolist())) == k for each in chosen])
    least = np.take_along_axis(logits, chosen, -1).min(-1)
    others = np.where(
        np.isin(np.arange(logits.size), _flat(chosen, logits.shape[-1])).reshape(logits.shape), -np.inf, logits
    )
    span = gamma(logits.shape[-1] + 6, FLOAT32) + 2 * FUNCTION + gamma(2, FLOAT32) * np.abs(logits).max(-1)
    found: NDArray[np.bool_] = ~unique | (others.max(-1) > least + 2 * span)
    return found


def _flat(chosen: NDArray[np.int64], E: int) -> NDArray[np.int64]:
    return (chosen + E * np.arange(len(chosen))[:, None]).reshape(-1)
