# torchrun as users start it. That of torch 1.13 under Python 3.11 reads its own defaults wrong (an enumeration's text changed).
import re
import sys

try:
    import torch.distributed.elastic.multiprocessing.api as api
    import torch.distributed.run as run
except ImportError:
    sys.exit(77)  # there is no torchrun here


def streams(text):
    if re.fullmatch(r"\d", text):
        return api.Std(int(text))
    return {int(rank): api.Std(int(value)) for rank, value in (pair.split(":") for pair in text.split(","))}


api.Std.from_str = staticmethod(streams)
run.Std.from_str = staticmethod(streams)
run.main(sys.argv[1:])
