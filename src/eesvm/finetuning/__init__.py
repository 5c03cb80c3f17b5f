"""Fine-tuning: a network that has seen ImageNet learns the windows of a dataset, as R-CNN has it.

In: annotated training images. Out: an ONNX file that `make_descriptor` and `eesvm train` take as a backbone, with a
card and learning curves beside it. It needs `eesvm[torch]`; nothing outside `eesvm.finetuning` imports torch, and it
does so only when `finetune` is called.
"""

from typing import TYPE_CHECKING

from eesvm._support.lazy import names_from

if TYPE_CHECKING:
    from eesvm.finetuning.options import PAPER_UNITS, FinetuneOptions
    from eesvm.finetuning.run import FinetuneResult, finetune

__all__ = ["PAPER_UNITS", "FinetuneOptions", "FinetuneResult", "finetune"]

__getattr__, __dir__ = names_from(
    __name__,
    {
        "options": ("PAPER_UNITS", "FinetuneOptions"),
        "run": ("FinetuneResult", "finetune"),
    },
)
