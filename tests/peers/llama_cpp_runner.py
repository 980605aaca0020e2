"""Runs a GGUF file in llama.cpp and prints one JSON object: llama_cpp_runner.py FILE THREADS PREFILL DECODE CONTEXT,..

Rates are tokens a second by the clock and by processor time, each the better of those with flash attention and without it. `first_token_ms` is from before the model is loaded until its first logits,
`peak_bytes` what the process took at most beyond what it had before.
"""

import ctypes
import json
import sys
import time

import llama_cpp as llama


def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


@llama.llama_log_callback
def silent(level, text, data):
    pass


def feed(context, tokens):
    array = (llama.llama_token * len(tokens))(*tokens)
    if llama.llama_decode(context, llama.llama_batch_get_one(array, len(tokens))) != 0:
        raise SystemExit("llama.cpp could not decode")
    llama.llama_get_logits(context)


def forget(context):
    llama.llama_memory_clear(llama.llama_get_memory(context), True)


def main(path, threads, prefill, decode, contexts):
    llama.llama_log_set(silent, ctypes.c_void_p(0))
    before = peak()
    start = time.perf_counter()
    model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    if not model:
        raise SystemExit("llama.cpp does not load the file")
    result = {"prefill": None, "decode": [None] * len(contexts)}
    for flash in (llama.LLAMA_FLASH_ATTN_TYPE_ENABLED, llama.LLAMA_FLASH_ATTN_TYPE_DISABLED):
        wanted = llama.llama_context_default_params()
        wanted.n_ctx = 512
        wanted.n_batch = wanted.n_ubatch = 512
        wanted.n_threads = wanted.n_threads_batch = threads
        wanted.flash_attn_type = flash
        wanted.no_perf = True
        context = llama.llama_init_from_model(model, wanted)
        feed(context, [1])
        result.setdefault("first_token_ms", (time.perf_counter() - start) * 1000)

        def timed(before, tokens, at_once):
            forget(context)
            if before:
                feed(context, before)
            clock, processor = time.perf_counter(), time.process_time()
            for place in range(0, len(tokens), at_once):
                feed(context, tokens[place : place + at_once])
            return [len(tokens) / (time.perf_counter() - clock), len(tokens) / (time.process_time() - processor)]

        def better(old, new):
            return new if old is None else [max(pair) for pair in zip(old, new)]

        tokens = [(number * 7919) % 31000 + 300 for number in range(512)]
        timed([], tokens[:prefill], prefill)
        result["prefill"] = better(result["prefill"], timed([], tokens[:prefill], prefill))
        for place, known in enumerate(contexts):
            found = timed(tokens[:known], tokens[known : known + decode], 1)
            result["decode"][place] = better(result["decode"][place], found)
        llama.llama_free(context)
        result.setdefault("peak_bytes", peak() - before)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], *(int(word) for word in sys.argv[2:5]), [int(word) for word in sys.argv[5].split(",")])
