"""Times decoding and resizing of pictures by Danlu beside PIL: same files, same target size, one core, by turns.

usage: pictures.py BUILD WORK [--turns 7]      (needs python3-pil; WORK is a folder for the pictures that it makes)
Prints for each picture the median milliseconds of processor time of both and their ratio (PIL's time by Danlu's).
"""

import argparse
import io
import json
import math
import os
import random
import statistics
import subprocess
import time

from PIL import Image, ImageFilter

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("build")
arguments.add_argument("work")
arguments.add_argument("--turns", type=int, default=7)
arguments.add_argument("--json", action="store_true", help="print one JSON line instead of the table")
options = arguments.parse_args()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the child inherits it


def photograph(width, height):
    """Soft shapes with a little noise: what a JPEG of a camera costs."""
    draw = random.Random(width)
    small = Image.new("RGB", (width // 40, height // 40))
    small.putdata([tuple(draw.randrange(256) for _ in range(3)) for _ in range(small.width * small.height)])
    large = small.resize((width, height), Image.BICUBIC)
    noise = Image.effect_noise((width, height), 24).convert("RGB")
    return Image.blend(large, noise, 0.12).filter(ImageFilter.SHARPEN)


CASES = [  # name, size, format, settings, max_pixels
    ("12 MP JPEG to 1 MP", (4032, 3024), "JPEG", {"quality": 90}, 1003520),
    ("12 MP JPEG, hub's limit", (4032, 3024), "JPEG", {"quality": 90}, 12845056),
    ("640x480 JPEG to 448x336", (640, 480), "JPEG", {"quality": 90}, 150528),
    ("640x480 JPEG progressive", (640, 480), "JPEG", {"quality": 90, "progressive": True}, 12845056),
    ("1080p PNG to 1 MP", (1920, 1080), "PNG", {}, 1003520),
    ("640x480 WebP", (640, 480), "WEBP", {"quality": 90}, 12845056),
]


def by_danlu(file, max_pixels):
    answer = json.loads(subprocess.run(
        [os.path.join(options.build, "picture_bench"), file, "--rounds", "3", "--max_pixels", str(max_pixels)],
        stdout=subprocess.PIPE, check=True).stdout)
    return answer


def by_pil(content, size):
    seconds = []
    for _ in range(3):
        begin = time.process_time()
        Image.open(io.BytesIO(content)).convert("RGB").resize(size, Image.BICUBIC)
        seconds.append(time.process_time() - begin)
    return seconds


os.makedirs(options.work, exist_ok=True)
rows = []
for number, (name, size, kind, settings, max_pixels) in enumerate(CASES):
    file = os.path.join(options.work, f"{number}.{kind.lower()}")
    photograph(*size).save(file, kind, **settings)
    with open(file, "rb") as opened:
        content = opened.read()
    ours, theirs = [], []
    for _ in range(options.turns):
        answer = by_danlu(file, max_pixels)
        ours += answer["seconds"]
        theirs += by_pil(content, (answer["width"], answer["height"]))
    danlu_ms, pil_ms = (1000 * statistics.median(seconds) for seconds in (ours, theirs))
    rows.append({"picture": name, "to": f'{answer["width"]}x{answer["height"]}', "danlu_ms": round(danlu_ms, 2),
                 "pil_ms": round(pil_ms, 2), "ratio": round(pil_ms / danlu_ms, 3)})
mean = math.exp(statistics.mean(math.log(row["ratio"]) for row in rows))
if options.json:
    print(json.dumps({"rows": rows, "geometric_mean": round(mean, 3)}))
else:
    print("| picture | to | Danlu, ms | PIL, ms | ratio |\n|---|---|---|---|---|")
    for row in rows:
        print(f'| {row["picture"]} | {row["to"]} | {row["danlu_ms"]} | {row["pil_ms"]} | {row["ratio"]}× |')
    print(f"geometric mean {mean:.3f}×")
