"""What each verb of the command takes: its options and its help text.

In: nothing but words and limits that options are chosen from. Out: a parser for each verb. Nothing here loads what
a verb works with.
"""

from eesvm.cli.parsers import (
    add,
    apply,
    cache,
    calibrate,
    data,
    demo,
    detect,
    drop,
    evaluate,
    finetune,
    report,
    reproduce,
    serve,
    train,
    transfer,
    verify,
    windows,
)

VERBS = (  # in the order of the help
    calibrate,
    verify,
    apply,
    demo,
    data,
    windows,
    finetune,
    train,
    add,
    drop,
    detect,
    transfer,
    evaluate,
    report,
    reproduce,
    serve,
    cache,
)
