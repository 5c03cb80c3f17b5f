"""Fine-tuning: a network that has seen ImageNet learns the windows of a dataset, as R-CNN has it.

In: annotated training images. Out: an ONNX file that `make_descriptor` and `eesvm train` take as a backbone, with a
card and learning curves beside it. It needs `eesvm[torch]`; nothing outside `eesvm.finetuning` imports torch, and it
does so only when `finetune` is called.
"""

from __future__ import annotations

from eesvm.finetuning.options import PAPER_UNITS, FinetuneOptions
from eesvm.finetuning.run import FinetuneResult, finetune

__all__ = ["PAPER_UNITS", "FinetuneOptions", "FinetuneResult", "finetune"]
