"""Makes a GGUF file of a Llama model: make_models.py SHAPE|SOURCE TYPE FILE, with random weights of a shape, or with those of another GGUF file in another type.

Shapes are those of llama2.c's stories15M, 42M and 110M. Speed does not depend on weights; the same shape has the same ones in every type, rounded.
"""

import sys

import numpy
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, TokenType, dequantize, quantize

# Width, width of the feed-forward network, layers, heads.
SHAPES = {"s15": (288, 768, 6, 6), "s42": (512, 1376, 8, 8), "s110": (768, 2048, 12, 12)}
VOCABULARY = 32000
POSITIONS = 1024
# The type of the embedding, which is the classifier too, and that of the other matrices.
TYPES = {
    "f32": ("F32", "F32"),
    "f16": ("F16", "F16"),
    "bf16": ("BF16", "BF16"),
    "q8": ("Q8_0", "Q8_0"),
    "q4": ("Q8_0", "Q4_0"),
    "q4all": ("Q4_0", "Q4_0"),
}


def pieces():
    """A vocabulary that takes some three letters a token, as real ones do: the bytes, all pairs and triples of letters."""
    letters = "▁abcdefghijklmnopqrstuvwxyz"
    yield "<unk>", TokenType.UNKNOWN
    yield "<s>", TokenType.CONTROL
    yield "</s>", TokenType.CONTROL
    for byte in range(256):
        yield f"<0x{byte:02X}>", TokenType.BYTE
    for letter in letters:
        yield letter, TokenType.NORMAL
    for first in letters:
        for second in letters:
            yield first + second, TokenType.NORMAL
    for first in letters:
        for second in letters:
            for third in letters:
                yield first + second + third, TokenType.NORMAL
    number = 0
    while True:
        yield f"unused{number}", TokenType.UNUSED
        number += 1


def converted(source, kind, path):
    """Everything of another file, its matrices in other types."""
    reader = GGUFReader(source)
    outer, inner = (GGMLQuantizationType[name] for name in TYPES[kind])
    out = GGUFWriter(path, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in ("general.architecture", "general.file_type"):
            inside = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            out.add_key_value(field.name, field.contents(), field.types[0], sub_type=inside)
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type)
        kind = GGMLQuantizationType.F32 if weights.ndim == 1 else outer if tensor.name in ("token_embd.weight", "output.weight") else inner
        out.add_tensor(tensor.name, quantize(weights, kind), raw_dtype=kind)
    write(out)


def write(out):
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def made(shape, kind, path):
    dim, hidden, layers, heads = SHAPES[shape]
    outer, inner = (GGMLQuantizationType[name] for name in TYPES[kind])
    random = numpy.random.default_rng(15)
    out = GGUFWriter(path, "llama")
    out.add_name(shape)
    out.add_context_length(POSITIONS)
    out.add_embedding_length(dim)
    out.add_block_count(layers)
    out.add_feed_forward_length(hidden)
    out.add_head_count(heads)
    out.add_head_count_kv(heads)
    out.add_rope_dimension_count(dim // heads)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(VOCABULARY)
    vocabulary = [piece for piece, _ in zip(pieces(), range(VOCABULARY))]
    out.add_tokenizer_model("llama")
    out.add_token_list([text.encode() for text, _ in vocabulary])
    out.add_token_scores([-float(number) for number in range(VOCABULARY)])
    out.add_token_types([kind for _, kind in vocabulary])
    out.add_unk_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)

    def matrix(name, rows, cols, kind):
        weights = random.uniform(-0.05, 0.05, (rows, cols)).astype(numpy.float32)
        out.add_tensor(name, quantize(weights, kind), raw_dtype=kind)

    def gains(name):
        out.add_tensor(name, numpy.ones(dim, numpy.float32))

    matrix("token_embd.weight", VOCABULARY, dim, outer)
    for layer in range(layers):
        gains(f"blk.{layer}.attn_norm.weight")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{layer}.{name}.weight", dim, dim, inner)
        gains(f"blk.{layer}.ffn_norm.weight")
        matrix(f"blk.{layer}.ffn_gate.weight", hidden, dim, inner)
        matrix(f"blk.{layer}.ffn_up.weight", hidden, dim, inner)
        matrix(f"blk.{layer}.ffn_down.weight", dim, hidden, inner)
    gains("output_norm.weight")
    write(out)


if __name__ == "__main__":
    what, kind, path = sys.argv[1:]
    (made if what in SHAPES else converted)(what, kind, path)
