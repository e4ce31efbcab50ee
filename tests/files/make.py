"""Makes images.inc, small JPEG and PNG files of kinds that Aril does not write, compressed.inc, an archive of NumPy, and
outside.inc, an HDF5 file whose arrays lie in other files.

Needs Pillow, NumPy and h5py."""
import io
import os
import struct
import zlib

import h5py
import numpy
from PIL import Image

W, H = 13, 9


def value(x, y, k, most):
    """Channel k of the pixel (x, y), 0 .. most: what the test expects."""
    return (x * 7 + y * 5 + k * 3) * 1009 % (most + 1)


def png(kind, depth, interlaced=False, extra=b""):
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]

    def rows(xs, ys):
        out = b""
        for y in ys:
            bits = "".join(format(value(x, y, k, (1 << depth) - 1), f"0{depth}b") for x in xs for k in range(channels))
            bits += "0" * (-len(bits) % 8)
            out += b"\0" + int(bits, 2).to_bytes(len(bits) // 8, "big")
        return out

    if interlaced:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
        data = b"".join(rows(range(x, W, dx), range(y, H, dy)) for x, y, dx, dy in passes if x < W and y < H)
    else:
        data = rows(range(W), range(H))

    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", W, H, depth, kind, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra_chunks(chunk, extra) + chunk(b"IDAT", zlib.compress(data, 9)) + \
        chunk(b"IEND", b"")


def extra_chunks(chunk, extra):
    return b"".join(chunk(name, body) for name, body in extra)


def jpeg(mode, **options):
    smooth = Image.new(mode, (24, 16))
    channels = len(smooth.getbands())
    for y in range(16):
        for x in range(24):
            v = tuple(x * 8 + y * 2 + 20 * k for k in range(channels))
            smooth.putpixel((x, y), v if channels > 1 else v[0])
    out = io.BytesIO()
    smooth.save(out, "JPEG", quality=95, **options)
    return out.getvalue()


palette = b"".join(bytes((i * 16, 255 - i * 16, i)) for i in range(16))
files = {
    "png_gray1": png(0, 1),
    "png_gray16": png(0, 16),
    "png_gray_alpha": png(4, 8),
    "png_rgb16": png(2, 16),
    "png_rgba": png(6, 8),
    "png_interlaced": png(2, 8, interlaced=True),
    "png_palette": png(3, 4, extra=[(b"PLTE", palette)]),
    "png_palette_alpha": png(3, 4, extra=[(b"PLTE", palette), (b"tRNS", bytes(range(0, 160, 10)))]),
    "jpeg_gray": jpeg("L"),
    "jpeg_progressive": jpeg("RGB", progressive=True, subsampling=0),
    "jpeg_cmyk": jpeg("CMYK", subsampling=0),
}
here = os.path.dirname(os.path.abspath(__file__))


def rows(data):
    return "".join("    " + " ".join(f"{b}," for b in data[i:i + 20]) + "\n" for i in range(0, len(data), 20))


with open(os.path.join(here, "images.inc"), "w") as out:
    out.write("/* Made by make.py. */\n")
    for name, data in files.items():
        out.write(f"static const unsigned char {name}[] = {{\n{rows(data)}}};\n")
archive = io.BytesIO()
numpy.savez_compressed(archive, x=numpy.arange(1000, dtype=numpy.int16) % 7)
with open(os.path.join(here, "compressed.inc"), "w") as out:
    out.write(rows(archive.getvalue()))

outside = io.BytesIO()
with h5py.File(outside, "w", libver="latest") as file:
    file["link"] = h5py.ExternalLink("other.h5", "x")
    file.create_dataset("raw", (4,), dtype="u1", external=[("raw.bin", 0, 4)])
    layout = h5py.VirtualLayout((4,), dtype="f4")
    layout[:] = h5py.VirtualSource("other.h5", "x", (4,))
    file.create_virtual_dataset("virtual", layout)
with open(os.path.join(here, "outside.inc"), "w") as out:
    out.write(rows(outside.getvalue()))
