#!/usr/bin/env python3
"""What bf16 costs a model of the size nano, plain and with its factors as codes, by the second implementation; and the file for `dmexp compare dtypes`, which must print the same (docs/dormouse.md).

    python3 narrowing.py FOLDER TEXT nano.f32.dmexp      FOLDER holds oracle.py, the numpy implementation; needs numpy
"""
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import oracle

text = open(sys.argv[2], "rb").read()
windows = [text[number * (len(text) - 256) // 7:][:256] for number in range(8)]

def bf16(x):
    return (oracle.bf16_bits(np.ascontiguousarray(x)).astype(np.uint32) << 16).view(np.float32).reshape(x.shape)

def canonical(tensors):
    """Factors as -1, 0 and 1, their sizes in `s`."""
    tensors = dict(tensors)
    for name in [name for name in tensors if name.endswith(".Tsct.u")]:
        size = 1.0
        for factor in (name, name[:-1] + "v"):
            w = tensors[factor].astype(np.float64)
            codes = np.sign(w) * (np.abs(w) > 0.7 * np.abs(w).mean())
            size *= np.abs(w).mean() / np.abs(codes).mean()
            tensors[factor] = codes.astype(np.float32)
        tensors[name[:-1] + "s"] = (tensors[name[:-1] + "s"] * size).astype(np.float32)
    return tensors

def logits(config, tensors):
    net = oracle.Net(config, tensors)
    return np.stack([net.full(window) for window in windows])

config = oracle.config(**oracle.PRESETS["nano"])
tensors = oracle.random_tensors(config, 5)
for name, value in (("a_log", -3), ("b_alpha", 1)):     # the decay that training starts from
    tensors["loop_block.shared_attn.gdn2.decay." + name][:] = value
oracle.write_dmexp(sys.argv[3], config, tensors)
exact = logits(config, tensors)
for name, written in (("bf16", tensors), ("bf16 canonical", canonical(tensors))):
    off = np.abs(logits(config, {name: bf16(x) for name, x in written.items()}) - exact)
    print(f"{name:15} largest difference {off.max():.3e}, mean {off.mean():.3e}, of logits up to {np.abs(exact).max():.2f}", flush=True)
