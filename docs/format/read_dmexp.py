#!/usr/bin/env python3
"""A second reader of .dmexp files, formats 1 and 2, with nothing but Python's standard library (3.11 or later: tomllib).

    read_dmexp.py FILE            checks every checksum, lists the tensors
    read_dmexp.py FILE TENSOR     prints one tensor: its numbers, a row a line

Written from the pages beside this file, to show that they are enough.
"""
import struct, sys, tomllib, zlib

FLOATS = {"f32": ("f", 4), "f16": ("e", 2), "u32": ("I", 4), "u8": ("B", 1)}
DTYPES = ["f32", "f16", "bf16", "q8", "q4", "t2", "u8", "u32"]

def check(name, stored, data):
    if zlib.crc32(data) != stored:
        sys.exit(f"checksum of {name}: the file says {stored:08x}, the bytes give {zlib.crc32(data):08x}")

def up(n, to): return (n + to - 1) // to * to

def count(dims):
    n = 1
    for size in dims: n *= size
    return n

def read(data):
    """[(name, dtype, dims, group, bytes)]"""
    if data[:7] != b"DMEXPRT" or len(data) < 32 or data[7] not in (1, 2):
        sys.exit("not a .dmexp file of format 1 or 2")
    header_len, payload_len, checksum = struct.unpack_from("<IQI", data, 8)
    if data[7] == 1:
        payload = data[24 + header_len:]
        if len(payload) != payload_len: sys.exit(f"{len(payload)} bytes of payload, the file says {payload_len}")
        check("the payload", checksum, payload)
        try:                                                 # No checksum is over this header.
            header = tomllib.loads(data[24:24 + header_len].decode())
            dtype, at, tensors = header["dtype"], 0, []
            size = {"f32": 4, "f16": 2, "bf16": 2}[dtype]
            for name, dims in ((tensor["name"], tensor["dims"]) for tensor in header["tensors"]):
                n = size * count(dims)
                tensors.append((name, dtype, dims, 0, payload[at:at + n]))
                at += n
            wrong = len({name for name, *_ in tensors}) != len(tensors) and "two tensors have one name"
        except (ValueError, KeyError, TypeError) as error: wrong = repr(error)
        if wrong: sys.exit(f"the header is damaged: {wrong}")
        if at != payload_len: sys.exit(f"the tensors take {at} bytes, the payload has {payload_len}")
        return tensors
    index_len, alignment = struct.unpack_from("<II", data, 24)
    start = 32 + header_len
    check("fixed part, header and index", checksum, data[:20] + data[24:start + index_len])
    index, payload = data[start:start + index_len], data[up(start + index_len, alignment):]
    if len(payload) != payload_len: sys.exit(f"{len(payload)} bytes of payload, the file says {payload_len}")
    number, records, names = (struct.unpack_from("<I", index, at)[0] for at in (8, 12, 32))
    check("the payload", struct.unpack_from("<I", index, 48)[0], payload)
    tensors = []
    for n in range(number):
        name_at, name_len, dtype, axes, *rest = struct.unpack_from("<IHBB4IIIQQI", index, records + 56 * n)
        dims, (group, crc, offset, size, _) = rest[:axes], rest[4:]
        name = index[names + name_at:names + name_at + name_len].decode()
        check(name, crc, payload[offset:offset + size])
        tensors.append((name, DTYPES[dtype], dims, group, payload[offset:offset + size]))
    return tensors

def rows(dtype, dims, group, data):
    """The values, row by row."""
    cols, total = dims[-1], count(dims)
    if dtype in FLOATS or dtype == "bf16":
        if dtype == "bf16":
            values = [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
        else:
            values = struct.unpack(f"<{total}{FLOATS[dtype][0]}", data)
        yield from (values[i:i + cols] for i in range(0, total, cols))
        return
    per_byte = {"q8": 1, "q4": 2, "t2": 4}[dtype]
    stride, n = up((cols + per_byte - 1) // per_byte, 4), total // cols
    groups = (cols + group - 1) // group if group else 1
    scales = up(n * stride, 16)
    multipliers = up(scales + 4 * (1 if dtype == "t2" else n), 16)
    has_multipliers, offsets = dtype == "q4" or (dtype == "q8" and group), up(multipliers + n * groups, 16)
    for row in range(n):
        scale = struct.unpack_from("<f", data, scales + (0 if dtype == "t2" else 4 * row))[0]
        values = []
        for column in range(cols):
            byte = data[row * stride + column // per_byte]
            code = {"q8": (byte ^ 128) - 128, "q4": byte >> 4 * (column % 2) & 15, "t2": (0, 1, -1, 0)[byte >> 2 * (column % 4) & 3]}[dtype]
            place = row * groups + (column // group if group else 0)
            if has_multipliers: code *= data[multipliers + place]
            if dtype == "q4": code += struct.unpack_from("<h", data, offsets + 2 * place)[0]
            values.append(struct.unpack("<f", struct.pack("<f", scale * code))[0])
        yield values

tensors = read(open(sys.argv[1], "rb").read())
if len(sys.argv) < 3:
    for name, dtype, dims, _, data in tensors: print(f"{name}  {dtype}  {dims}  {len(data)} bytes")
else:
    found = [tensor for tensor in tensors if tensor[0] == sys.argv[2]]
    if not found: sys.exit(f"no tensor {sys.argv[2]}")
    for row in rows(*found[0][1:]): print(*(f"{value:.9g}" for value in row))
