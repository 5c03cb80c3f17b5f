// Sentences that explain what is shown.

const TEXTS = {
  detections:
    "Each detection beside the training object that it looks like. Yellow is the mask that this object transfers, moved " +
    "to the edges of the image, pink are its parts.",
  frames: " Green frames are right, orange ones wrong.",
  missed:
    "Objects that no detection has found, however low its score. Found means: a detection of the class overlaps it by an " +
    "IoU of 0.5 or more, and no other object of the class by more.",
  exemplars:
    "One detector for each training object; #17 is its number in files of detections. The bars are scores of training " +
    "windows: positives upwards, negatives downwards, each to their own highest bar, and the threshold of the joint " +
    "calibration across. Below them the training objects whose windows the exemplar is responsible for, and how many " +
    "windows.",
  errors:
    "Of each class with N objects its N surest detections, by what is wrong with them: too little overlap with an object " +
    "of the class (localisation), an object of another class (confusion), an object that was found already (duplicate), " +
    "or nothing at all (background).",
  level:
    "The marks on the curves are at this score. To begin with it is the one with the best F1 in these very images, summed " +
    "over classes: on new ones it will do worse.",
  search: (isAcross) =>
    "The joint calibration gives every exemplar a threshold so that every positive training window (or the share that " +
    `was asked for) is accepted${isAcross ? " by an exemplar of another image" : ""}, and as few negative ones as ` +
    "possible by anyone. The loss is the number of these; the lower bound is proven: no thresholds accept fewer.",
  floors:
    "Loss and lower bound when only a share of the positive training windows must be accepted: how much a few hard " +
    "positives cost.",
  scores:
    "Positives upwards, negatives downwards; the line is the threshold. Heights are square roots, positives and negatives " +
    "each to their own highest bar.",
  responsible: "it accepts them by a larger margin than any other exemplar.",
};

const STATES = {
  active: {
    word: "active",
    tone: "right",
    why: data.is_joint ? "It has a threshold, and takes part in detection." : "It has a threshold.",
  },
  muted: {
    word: "muted",
    tone: "other",
    why: "It has a threshold, but too few positives lie above it for a sigmoid, so its calibrated scores stay low.",
  },
  redundant: {
    word: "redundant",
    tone: "other",
    why: `It has no threshold and accepts nothing: the positives are accepted without it${data.is_joint ? "; it takes no part in detection" : ""}.`,
  },
  unknown: { word: "no threshold", tone: "other", why: "The model has no joint calibration." },
};

function statusText(search) {
  const gap = `gap ${percent(search.gap)}`;
  const texts = {
    optimal: "proven optimal",
    gap_reached: `${gap}, as near to the optimum as was asked for`,
    time_limit: `${gap}, stopped by the time limit`,
    node_limit: `${gap}, stopped by the limit of nodes`,
    feasible: "not proven optimal",
  };
  return texts[search.status] ?? search.status;
}

function verdictText(detection) {
  const object = detection.object === null ? null : data.scenes[detection.scene].objects[detection.object];
  const overlap = detection.iou === null ? "" : detection.iou.toFixed(2);
  const texts = {
    right: `It overlaps an object of its class by an IoU of ${overlap}.`,
    localisation: `It overlaps an object of its class, but by an IoU of ${overlap} only.`,
    confusion: `What it overlaps, by an IoU of ${overlap}, is ${object ? object.class_name : "of another class"}.`,
    duplicate: "A surer detection has found this object already.",
    background: "It overlaps no annotated object by an IoU of 0.1 or more.",
    ignored: "The object there is marked as difficult or as a crowd.",
    unjudged: "There are no annotations of this class.",
  };
  return texts[detection.kind];
}

function winsText(exemplar) {
  if (!exemplar.n_detections) return "won no detection";
  const won = `won ${counted(exemplar.n_detections, "detection")}`;
  if (!data.has_truth) return won;
  if (!exemplar.n_right && !exemplar.n_wrong) return `${won}, none among the surest`;
  return `${won}; among the surest ${count(exemplar.n_right)} right, ${count(exemplar.n_wrong)} wrong`;
}

function nearText(missed) {
  if (missed.best_iou === 0) return "no detection of the class overlaps it";
  return `the nearest detection of the class overlaps it by ${missed.best_iou.toFixed(2)}`;
}
