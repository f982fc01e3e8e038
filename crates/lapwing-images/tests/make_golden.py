"""Writes golden.json: pictures, and what Pillow makes of them. `pip install -r requirements.txt`, then run this.

`decoded` has pictures of each kind with their RGB; `resized` one picture in other sizes by every filter; `tensors` what the image
processors of transformers compute with Pillow and numpy: `resize` and `get_resize_output_image_size`, `center_crop`, `rescale` and
`normalize` of its image_transforms, written out here.
"""

import base64
import io
import json
import pathlib

import numpy as np
from PIL import Image

rng = np.random.default_rng(4)


def b64(data):
    return base64.b64encode(bytes(data)).decode()


def scene(width, height):
    """Gradients, edges and some noise, as in a photograph."""
    y, x = np.mgrid[0:height, 0:width]
    red, green, blue = 255 * x / width, 255 * y / height, 127 + 120 * np.sin(x / 5) * np.cos(y / 7)
    rgb = np.stack([red, green, blue], 2) + rng.normal(0, 4, (height, width, 3))
    rgb[height // 3 : height // 2, width // 4 : width // 2] = [250, 20, 60]
    return Image.fromarray(rgb.clip(0, 255).astype(np.uint8))


def saved(image, kind, **more):
    out = io.BytesIO()
    image.save(out, kind, **more)
    return out.getvalue()


def interlaced(image):
    """Pillow writes no interlaced files: Adam7 by hand, without filters."""
    import struct
    import zlib

    rows, data = np.asarray(image), b""
    for x0, y0, dx, dy in [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]:
        for row in rows[y0::dy, x0::dx]:
            data += b"\0" + row.tobytes() if row.size else b""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", image.width, image.height, 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def pictures():
    image = scene(37, 26)
    yield "png rgb", saved(image, "PNG")
    yield "png grey", saved(image.convert("L"), "PNG")
    yield "png one bit", saved(image.convert("1"), "PNG")
    yield "png palette", saved(image.quantize(16), "PNG")
    alpha = image.convert("RGBA")
    alpha.putalpha(Image.fromarray(np.tile(np.arange(37, dtype=np.uint8) * 5, (26, 1))))
    yield "png alpha", saved(alpha, "PNG")
    yield "png grey alpha", saved(alpha.convert("LA"), "PNG")
    palette = image.quantize(16)
    yield "png transparent palette", saved(palette, "PNG", transparency=3)
    yield "png interlaced", interlaced(image)
    for name, sampling in [("4:4:4", 0), ("4:2:2", 1), ("4:2:0", 2)]:
        yield f"jpeg {name}", saved(image, "JPEG", quality=90, subsampling=sampling)
    yield "jpeg progressive", saved(image, "JPEG", quality=85, progressive=True, subsampling=0)
    yield "jpeg grey", saved(image.convert("L"), "JPEG", quality=90)


def decoded():
    for name, data in pictures():
        image = Image.open(io.BytesIO(data)).convert("RGB")
        yield {"name": name, "file": b64(data), "width": image.width, "height": image.height, "rgb": b64(image.tobytes())}


def resized(image):
    for number in range(6):
        for size in [(20, 17), (45, 26), (5, 40)]:
            yield {"filter": number, "width": size[0], "height": size[1], "rgb": b64(image.resize(size, number).tobytes())}


CONFIGS = [
    {"do_resize": True, "size": {"height": 12, "width": 16}, "resample": 2, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
     "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    {"do_resize": True, "size": {"shortest_edge": 15}, "resample": 3, "do_center_crop": True, "crop_size": {"height": 12, "width": 12},
     "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.48145466, 0.4578275, 0.40821073],
     "image_std": [0.26862954, 0.26130258, 0.27577711]},
    {"do_resize": True, "size": {"height": 10, "width": 10}, "resample": 0, "do_rescale": True, "rescale_factor": 0.00784313725490196,
     "do_normalize": False},
]  # fmt: skip


def tensor(image, config):
    size = config["size"]
    if "shortest_edge" in size:
        short, long = sorted(image.size)
        wanted = size["shortest_edge"], int(size["shortest_edge"] * long / short)
        width, height = wanted if image.width <= image.height else wanted[::-1]
    else:
        width, height = size["width"], size["height"]
    array = np.array(image.resize((width, height), config["resample"]))
    if config.get("do_center_crop"):
        h, w = config["crop_size"]["height"], config["crop_size"]["width"]
        top, left = (array.shape[0] - h) // 2, (array.shape[1] - w) // 2
        array = array[top : top + h, left : left + w]
    array = (array.astype(np.float64) * config["rescale_factor"]).astype(np.float32)
    if config["do_normalize"]:
        array = (array - np.array(config["image_mean"], np.float32)) / np.array(config["image_std"], np.float32)
    return array


def tensors():
    for config in CONFIGS:
        for image in (scene(61, 45), scene(33, 80)):
            array = tensor(image, config)
            one = {"file": b64(saved(image, "PNG")), "config": config, "height": array.shape[0], "width": array.shape[1]}
            yield one | {"values": b64(array.astype("<f4").tobytes())}


image = scene(37, 26)
golden = {"decoded": list(decoded()), "picture": b64(saved(image, "PNG")), "resized": list(resized(image)), "tensors": list(tensors())}
(pathlib.Path(__file__).parent / "golden.json").write_text(json.dumps(golden) + "\n")
