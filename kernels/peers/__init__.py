"""Implementations of other projects, from packages on PyPI: PEERS cross-validate the kernels, ORACLES the formats.

Importing this module loads none of them; `missing()` of each reports whether it is available. All come with the
extra `peers`.
"""

from __future__ import annotations

from dataclasses import replace

from tritmark.harness.spec import Peer
from tritmark.kernels.peers import ggml, gguf_numpy, ik_llama, isa, libggml, libik, onnx
from tritmark.kernels.peers.narrow import rounded
from tritmark.kernels.peers.oracles import ORACLES

_NEEDS = ((ggml, libggml.needs), (gguf_numpy, isa.dispatches), (onnx, isa.dispatches), (ik_llama, libik.needs))
_COMPUTED = tuple(
    replace(peer, missing=isa.limited(peer.missing, needs)) for module, needs in _NEEDS for peer in module.PEERS
)

_ROUNDED = (
    rounded(each, dtype)
    for dtype in ("bfloat16", "float16")
    for each in _COMPUTED
    if each.op == "ternary_matmul" and each.dtypes == {"float32"}
)

PEERS: tuple[Peer, ...] = (*_COMPUTED, *(peer for peer in _ROUNDED if peer is not None))
"""Every peer, in the order in which reports show them."""

__all__ = ["ORACLES", "PEERS"]
