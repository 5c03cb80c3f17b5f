"""What `eesvm finetune` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from collections.abc import Callable

from eesvm.cli.arguments import Parsers, add_annotations_argument, add_unlabelled_argument, add_verb, number
from eesvm.descriptors.backbones import DEVICES
from eesvm.finetuning.options import BATCH_NORMS, DEFAULT_PRESET, NETWORKS, PAPER_UNITS, PRESETS
from eesvm.windows.settings import METHODS, MODES

EVERYTHING = "all"
_HELP = f"""\
DATA is what `eesvm data info` takes, or the word scenes. Windows that overlap an object by half learn its class, all
others are background; images that are held out decide when to stop. Name the split to train on: a network that has seen
the images it is tested on says nothing about others.

It needs torch: pip install 'eesvm[torch]'. A GPU is used where there is one; without one, --preset small is made for
two cores. NETWORK is {", ".join(NETWORKS)}, or MODULE:FUNCTION: a function without arguments that gives a torch
module, from pictures (n, 3, h, w), normalised as in torchvision, to (n, d) or to a map (n, d, h, w).

example:
  eesvm finetune cards --split train -o cards.onnx
  eesvm train cards --split train -o model --set descriptor.backbone=cards.onnx --set descriptor.mode=crop

  eesvm finetune VOCdevkit/VOC2007 --split train --held-out-split val --hidden -o paper.onnx
  eesvm train VOCdevkit/VOC2007 --split train -o model --set descriptor.backbone=paper.onnx --set descriptor.mode=crop
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "finetune", "finetune:run", "fine-tune the network on the windows of a dataset", _HELP)
    add = parser.add_argument
    add("data", metavar="DATA", help="folder or file of a dataset, or the word scenes")
    add("-o", "--output", required=True, metavar="FILE", help=".onnx file; a card and curves go beside it")
    add_annotations_argument(parser)
    add_unlabelled_argument(parser)
    add("--split", metavar="NAME", help=f"only the images of this split; {EVERYTHING}: all images")
    add("--held-out-split", metavar="NAME", help="stop by the images of this split (default: a share of the images)")
    add("--classes", metavar="A,B,...", help="tell only these classes apart, others are background (default: all)")
    add("--preset", choices=tuple(PRESETS), default=DEFAULT_PRESET, help=f"start from these ({DEFAULT_PRESET})")
    add("--network", metavar="NETWORK", help="what to start from (lite0)")
    add("--stages", type=_whole(0), metavar="N", help="train only the last N stages of the network (default: all)")
    add("--hidden", type=_whole(1), nargs="?", const=PAPER_UNITS, metavar="UNITS",
        help=f"a layer before the classes, which describes crops from then on ({PAPER_UNITS})")  # fmt: skip
    add("--input-size", type=_whole(64), metavar="PIXELS", help="side of a crop (default: what the network had)")
    add("--epochs", type=_whole(1), metavar="N", help="at most")
    add("--batches", type=_whole(1), metavar="N", help="of an epoch (default: every positive once, at most 200)")
    add("--patience", type=_whole(1), metavar="N", help="stop after N epochs without a better held-out loss")
    add("--positives", type=_whole(1), metavar="N", help="windows of objects in a batch (32)")
    add("--backgrounds", type=_whole(1), metavar="N", help="windows of background in a batch (96)")
    add("--learning-rate", type=number(above=0), metavar="R", help="of the network, at its highest")
    add("--batch-norm", choices=BATCH_NORMS, help="keep ImageNet's statistics, or follow the windows (frozen)")
    add("--no-flip", action="store_true", help="do not mirror windows")
    add("--jitter", type=number(0, 0.5), metavar="R", help="move sides by up to this share of the window (0.1)")
    add("--colour", type=number(0, 0.9), metavar="R", help="change colours by up to this share (0.2)")
    add("--held-out", type=number(above=0, maximum=0.9), metavar="R", help="share of the images to stop by (0.2)")
    add("--min-objects", type=_whole(1), metavar="N", help="that a class must have (3)")
    add("--windows", choices=METHODS, help="where windows come from")
    add("--mode", choices=MODES, help="of selective search")
    add("--max-windows", type=_whole(1), metavar="N", help="windows of an image")
    add("--windows-from", metavar="FILE", help="take windows that `eesvm windows --ground-truth -o FILE` has written")
    add("--device", choices=DEVICES, default=DEVICES[0], help="what computes (default: a GPU where there is one)")
    add("--jobs", type=_whole(1), metavar="N", help="processes and threads (default: all cores)")
    add("--seed", type=_whole(0), metavar="N", help="of all random choices (0)")
    add("--cache", metavar="FOLDER", help="keep windows here (default: the one of `eesvm cache`)")
    add("--no-cache", action="store_true", help="keep none")
    add("--overwrite", action="store_true", help="replace FILE if it was made from other things")
    add("--strict", action="store_true", help="stop at the first annotation that is wrong")
    add("--quiet", action="store_true", help="print nothing but errors")


def _whole(minimum: int) -> Callable[[str], float]:
    return number(minimum=minimum, integer=True)
