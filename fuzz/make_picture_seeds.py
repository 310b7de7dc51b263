"""Writes the seed corpora of fuzz_picture and fuzz_video; run after changing what they should know.

usage: fuzz/make_picture_seeds.py PICTURES VIDEOS     (folders of small files; the seeds are kept in fuzz/corpus)
"""

import os
import shutil
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
LARGEST = 12 * 1024

for target, folder in zip(("picture", "video"), sys.argv[1:3]):
    into = os.path.join(ROOT, "fuzz_" + target)
    os.makedirs(into, exist_ok=True)
    for name in sorted(os.listdir(folder)):
        source = os.path.join(folder, name)
        if os.path.isfile(source) and os.path.getsize(source) <= LARGEST and not name.endswith((".json", ".safetensors")):
            shutil.copyfile(source, os.path.join(into, name))
