#!/usr/bin/env python3
"""Writes tests/golden/quant/blocks.txt: random blocks of every weight format and their values.

The values come from the `gguf` package (PyPI), an implementation independent of ours. One line a
format: name, the blocks' bytes in hex, the float32 values in hex (little-endian).
"""
import pathlib

import gguf
import numpy as np
from gguf.quants import dequantize

BLOCKS = {32: 3, 256: 2}
# Offsets of the f16 fields of a block, which get finite values of ordinary size.
HALF_FIELDS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}


def main():
    rng = np.random.default_rng(20)
    lines = []
    for name, fields in HALF_FIELDS.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (BLOCKS[elements], size), dtype=np.uint8)
        for offset in fields:
            halves = rng.uniform(-0.1, 0.1, len(blocks)).astype("<f2")
            blocks[:, offset : offset + 2] = halves.view(np.uint8).reshape(-1, 2)
        if name == "MXFP4":
            blocks[:, 0] = [0, 1, 120]
        values = dequantize(blocks.reshape(1, -1), kind).astype("<f4")
        lines.append(f"{name} {blocks.tobytes().hex()} {values.tobytes().hex()}")
    out = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/quant/blocks.txt"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
