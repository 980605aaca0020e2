#!/usr/bin/env python3
"""Makes references.json: what a second implementation of dormouse computes for models whose weights made.rs makes in the same way.

    python3 references.py FOLDER > references.json      FOLDER holds oracle.py, the numpy implementation; needs numpy
"""
import json, math, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import oracle

def weights(name, dims):
    """The weights of a tensor: a hash of its name and the element's number, uniform in [-1, 1), times a scale, plus an offset, in f32."""
    seed = 2166136261
    for byte in name.encode(): seed = (seed ^ byte) * 16777619 & 0xffffffff
    with np.errstate(over="ignore"):
        u = np.arange(math.prod(dims), dtype=np.uint32) * np.uint32(2654435761) + np.uint32(seed)
        u ^= u >> np.uint32(16); u *= np.uint32(0x7feb352d); u ^= u >> np.uint32(15); u *= np.uint32(0x846ca68b); u ^= u >> np.uint32(16)
    x = (u >> np.uint32(8)).astype(np.float32) / np.float32(8388608) - np.float32(1)
    leaf = name.rsplit(".", 1)[1]
    if leaf == "b_alpha": scale, offset = 3, 0
    elif leaf == "a_log": scale, offset = 1, 0
    elif leaf in ("s", "residual_scale", "gain", "gamma", "o_norm_w") or name.endswith("norm.weight") or "branch_norms" in name: scale, offset = 0.25, 1
    elif name == "embedding.weight" or "memory" in name: scale, offset = 1.5, 0
    elif leaf in ("iter_embed", "bias", "beta", "query", "b_pre", "b_post", "b_res"): scale, offset = 0.5, 0
    else: scale, offset = math.sqrt(3.0 / dims[0]), 0
    return (x * np.float32(scale) + np.float32(offset)).reshape(dims)

class ScaleOne(oracle.Net):
    """The recurrence as dormouse had it before 2026-10-02."""
    def kda_step(self, *args):
        o, s = super().kda_step(*args)
        return o * self.c["head_dim"] ** 0.5, s

TINY = dict(d_model=32, n_heads=4, head_dim=8, d_ffn=48, rank=8, engram_rows=60, max_iter=4, n_experts=3, max_seq_len=96)
TEXT = "the quick brown fox jumps over the lazy dog; \u043f\u0440 42\n"
MODELS = {
    "small": ({}, TEXT[:20], {}), "nano": (oracle.PRESETS["nano"], TEXT[:24], {}),
    "default": (TINY, TEXT, {}), "one byte": (TINY, "t", {}), "scale 1": (TINY, TEXT, dict(conf_markov=False)),
    "moe top-1": ({**TINY, "moe_topk": 1}, TEXT, {}), "moe top-2 of 12": ({**TINY, "moe_topk": 2, "n_experts": 12}, TEXT, {}),
    "attnres": ({**TINY, "use_attnres": True}, TEXT, {}), "attnres without gain": ({**TINY, "use_attnres": True}, TEXT, dict(attnres_gain=False)),
    "situ": ({**TINY, "use_situ": True}, TEXT, {}), "gr dense": ({**TINY, "use_gr": True, "use_tsct": False, "d_model": 64}, TEXT, {}),
    "mhc 2": ({**TINY, "use_mhc": True, "mhc_streams": 2}, TEXT, {}), "mor 3": ({**TINY, "use_mor": True, "mor_k": 3}, TEXT, {}),
    "no engram": ({**TINY, "use_engram": False}, TEXT, {}), "no kda": ({**TINY, "use_kda": False, "engram_rows": 7}, TEXT, {}),
    "int8": ({**TINY, "act_quant": "8"}, TEXT, {}), "int4": ({**TINY, "act_quant": "int4", "act_group": 8}, TEXT, {}), "fp4": ({**TINY, "act_quant": "fp4", "act_group": 16}, TEXT, {}),
    "plain": ({**TINY, "use_plain_attn": True, "use_kda": False, "max_iter": 3}, TEXT, {}),
    "odd": (dict(d_model=44, n_heads=2, head_dim=6, d_ffn=50, rank=70, vocab=259, engram_rows=7, engram_dim=5, max_iter=9, n_experts=2, aux_fb_weight=0.5, max_seq_len=96, norm_eps=0.01, engram_lam_max=0.25), TEXT, {}),
}
out = []
for name, (changes, text, options) in MODELS.items():
    c = oracle.config(**changes)
    net_config = dict(c, act_quant={"int4": "4"}.get(c["act_quant"], c["act_quant"]))
    tensors = {n: weights(n, dims) for n, dims in oracle.tensor_list(c, **options)}
    net = (oracle.Net if options.get("conf_markov", True) else ScaleOne)(net_config, tensors)
    logits = net.full(text.encode(), "step")
    keep = lambda row: [float(f"{x:.8g}") for x in row]
    out.append(dict(name=name, config=changes, text=list(text.encode()), tensors=len(tensors), params=int(sum(t.size for t in tensors.values())),
                    aux=[[n, list(t.shape)] for n, t in tensors.items() if n.startswith("aux.")], attnres_gain=options.get("attnres_gain", True),
                    last=keep(logits[-1]), first=keep(logits[0]), largest=float(np.abs(logits).max())))
    print(name, out[-1]["largest"], file=sys.stderr)
print("[" + ",\n".join(json.dumps(o) for o in out) + "]")
