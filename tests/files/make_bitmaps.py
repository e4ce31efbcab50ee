#!/usr/bin/env python3
"""Writes bitmaps.inc: BMP, PGM and PPM files of the kinds that Aril reads, with the pixels of make.py's PNG files.

Needs Pillow, which writes or reads each of them."""
import io
import os
import struct

from PIL import Image

W, H = 13, 9


def value(x, y, k, most):
    """Channel k of the pixel (x, y), 0 .. most: what the test expects."""
    return (x * 7 + y * 5 + k * 3) * 1009 % (most + 1)


def image(mode, most=255):
    out = Image.new(mode, (W, H))
    n = len(out.getbands())
    for y in range(H):
        for x in range(W):
            v = tuple(value(x, y, k, most) for k in range(n))
            out.putpixel((x, y), v if n > 1 else v[0] * (255 if mode == "1" else 1))
    if mode == "P":
        out.putpalette([c for i in range(16) for c in (i * 16, 255 - i * 16, i)])
    return out


def saved(picture, kind):
    out = io.BytesIO()
    picture.save(out, kind)
    return out.getvalue()


def bmp(header, bits, pixels, palette=b"", height=H, compression=0, masks=b""):
    """One that Pillow does not write."""
    if header == 12:
        body = struct.pack("<IHHHH", 12, W, height, 1, bits)
    else:
        body = struct.pack("<IiiHHIIiiII", header, W, height, 1, bits, compression, 0, 0, 0, len(palette) // 4, 0) + masks
        body += bytes(max(0, header - len(body)))
    at = 14 + len(body) + len(palette)
    return b"BM" + struct.pack("<IHHI", at + len(pixels), 0, 0, at) + body + palette + pixels


def rows32(channels):
    return b"".join(bytes([value(x, y, 2, 255), value(x, y, 1, 255), value(x, y, 0, 255), channels(x, y)])
                    for y in range(H) for x in range(W))


def rows4():
    out = b""
    for y in reversed(range(H)):
        v = [value(x, y, 0, 15) for x in range(W)] + [0] * 3
        out += bytes(v[i] << 4 | v[i + 1] for i in range(0, 16, 2))
    return out


def netpbm(text, most, channels):
    wide = most > 255
    return text.encode() + b"".join(value(x, y, k, most).to_bytes(2 if wide else 1, "big")
                                    for y in range(H) for x in range(W) for k in range(channels))


palette = [(i * 16, 255 - i * 16, i) for i in range(16)]
masks = struct.pack("<IIII", 0xff0000, 0xff00, 0xff, 0xff000000)
files = {
    "bmp_gray1": saved(image("1", 1), "BMP"),
    "bmp_gray8": saved(image("L"), "BMP"),
    "bmp_rgb": saved(image("RGB"), "BMP"),
    "bmp_palette": saved(image("P", 15), "BMP"),
    "bmp_palette_old": bmp(12, 4, rows4(), b"".join(bytes(reversed(c)) for c in palette)),
    "bmp_top_down": bmp(40, 32, rows32(lambda x, y: 0), height=-H),
    "bmp_rgba": bmp(124, 32, rows32(lambda x, y: value(x, y, 3, 255)), height=-H, compression=3, masks=masks),
    "pgm_gray": saved(image("L"), "PPM"),
    "pgm_gray16": netpbm(f"P5 {W} {H} 65535\n", 65535, 1),
    "ppm_rgb": netpbm(f"P6\n# a comment\n{W} # another\n{H}\n255\n", 255, 3),
    "ppm_rgb15": netpbm(f"P6 {W}\t{H} 15 ", 15, 3),
    "ppm_rgb16": netpbm(f"P6 {W} {H} 65535\n", 65535, 3),
}
for name, data in files.items():
    assert Image.open(io.BytesIO(data)).size == (W, H), name
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "bitmaps.inc"), "w") as out:
    out.write("/* Made by make_bitmaps.py. */\n")
    for name, data in files.items():
        rows = "".join("    " + " ".join(f"{b}," for b in data[i:i + 20]) + "\n" for i in range(0, len(data), 20))
        out.write(f"static const unsigned char {name}[] = {{\n{rows}}};\n")
