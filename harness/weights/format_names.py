"""Names that weight files and formats share. This module imports nothing: formats import it, and readers of files are
costly to import."""

from __future__ import annotations

MLX_Q2 = "mlx_q2"
COMPRESSED_TENSORS_2 = "compressed_tensors_2"
GPTQ_2 = "gptq_2"
ORT_Q2 = "ort_q2"
ORT_Q2_SM80 = "ort_q2_sm80"
"""Names of the formats of matrices of words, see tritmark.kernels.formats."""

QMOE = "qmoe_2"
"""The name of the WeightType of experts whose file does not state the layout."""
QMOE_LAYOUTS = {"plain": ORT_Q2, "sm80": ORT_Q2_SM80}
"""Its formats, by the name in --layout."""

PACKED_ROWS = "packed_rows"
"""The type of a uint8 tensor (R, K) with rows n, n + R, n + 2R and n + 3R in each byte. N is 4 * R, because files do
not state whether it was less."""
