// The first view: figures, pictures, curves, searches, errors.

const STRIP = 6; // cards of each kind

function summaryView(params) {
  const judged = data.classes.filter((each) => each.curve);
  const facts = data.facts.map((fact) => h("div", {},
    h("dt", {}, fact.name), h("dd", { class: "value" }, fact.value), fact.note && h("dd", { class: "why" }, fact.note)));
  const notes = h("ul", {}, data.notes.map((text) => h("li", {}, text)));
  return [
    h("h2", { id: "view-title", tabindex: -1, class: "hidden" }, "Summary"),
    h("dl", { class: "facts" }, facts),
    data.notes.length > 0 && h("aside", { class: "notes", "aria-label": "Notes" }, notes),
    strips(),
    h("h2", {}, "Classes"),
    classTable(),
    judged.length > 0 && curveSection(params, judged),
    data.has_truth && errorSection(),
    searchSection(),
    optionSection(),
  ];
}

function strips() {
  const ofKind = (fits) => inTurn(data.detections.map((_, k) => k).filter((k) => fits(data.detections[k].kind)));
  if (!data.detections.length && !data.missed.length) return h("p", {}, "Nothing was detected.");
  if (!data.has_truth) {
    return strip("Surest detections", ofKind(() => true), detectionCard, ["All detections", address("detections")]);
  }
  const [right, wrong] = [ofKind((kind) => kind === "right"), ofKind((kind) => WRONG.includes(kind))];
  const missed = data.missed.map((_, k) => k).slice(0, STRIP);
  const toKind = (text, kind) => [text, address("detections", { kind })];
  return [
    strip("Surest right detections", right, detectionCard, toKind("All right detections", "right")),
    strip("Worst false positives", wrong, detectionCard, toKind("All false positives", "wrong")),
    strip("Missed objects", missed, missedCard, ["All missed objects", address("missed")], "narrow"),
  ];
}

// The first few, one class after the other, so that the strip shows several of them.
function inTurn(numbers) {
  const ranks = new Map();
  const ranked = numbers.map((k) => {
    const id = data.detections[k].class_id;
    ranks.set(id, (ranks.get(id) ?? -1) + 1);
    return [ranks.get(id), k];
  });
  return ranked.sort((a, b) => a[0] - b[0] || a[1] - b[1]).slice(0, STRIP).map(([, k]) => k);
}

function strip(title, numbers, card, [text, href], style = "") {
  if (!numbers.length) return null;
  return h("section", {},
    h("h2", {}, title),
    h("ul", { class: `grid ${style}` }, numbers.map(card)),
    h("p", {}, h("a", { href }, text)));
}

// Columns that nothing is known about are left out.
function classTable() {
  const known = (value, text) => (value === null || value === undefined ? "–" : text(value));
  const exemplars = (each, id) =>
    each.n_exemplars ? h("a", { href: address("exemplars", withClass(id)) }, count(each.n_exemplars)) : "0";
  const columns = [["class", (each) => each.name], ["exemplars", exemplars]];
  if (data.classes.some((each) => each.search)) {
    columns.push(
      ["redundant", (each) => known(each.search?.n_redundant, count)],
      ["calibration loss", (each) => known(each.search?.loss, amount)],
      ["lower bound", (each) => known(each.search?.lower_bound, amount)],
      ["gap", (each) => known(each.search?.gap, percent)],
      ["search", (each) => known(each.search?.status, (status) => status.replace("_", " "))],
    );
  }
  columns.push(["detections", (each) => count(each.n_detections)]);
  if (data.has_truth) {
    columns.push(
      ["objects", (each) => known(each.n_objects, count)],
      ["found", (each) => known(each.n_hits, count)],
      ["average precision", (each) => known(each.average_precision, percent)],
    );
  }
  const rows = data.classes.map((each, id) => columns.map(([, cell]) => cell(each, id)));
  return dataTable("Training and detection of each class", columns.map(([name]) => name), rows);
}

// Precision over recall, and false positives over recall. Of many classes three of the best and three of the worst
// have a colour, and the one that is chosen.
function coloured(judged, chosen) {
  const ranked = judged.slice().sort((a, b) => b.average_precision - a.average_precision);
  let named = ranked.length <= 6 ? judged : [...ranked.slice(0, 3), ...ranked.slice(-3)];
  if (chosen && !named.includes(chosen)) named = [...named.slice(0, 5), chosen];
  return new Map(named.map((each, k) => [each, `c${k}`]));
}

function curveSection(params, judged) {
  const id = chosenClass(params);
  const chosen = judged.find((each) => each === data.classes[id]) ?? null;
  const colours = coloured(judged, chosen);
  const styleOf = (each) => (chosen && each !== chosen) || !colours.has(each) ? "pale" : colours.get(each);
  const isColoured = (each) => Number(styleOf(each) !== "pale");
  const drawn = judged.slice().sort((a, b) => isColoured(a) - isColoured(b)); // grey ones below the others
  const level = scoreLevel(params, judged);
  const curves = [precisionChart(drawn, styleOf, level), falsePositiveChart(drawn, styleOf, level)];
  const table = h("div", {}, levelTable(judged, level));
  const update = () => {
    curves.forEach(redraw);
    table.replaceChildren(...levelTable(judged, level));
  };
  return h("section", { class: "curves" },
    h("h2", {}, "Precision, recall and false positives"),
    legend(colours, chosen, judged),
    h("div", { class: "charts" },
      h("figure", {}, h("figcaption", {}, h("b", {}, "Precision over recall")), curves[0]),
      h("figure", {}, h("figcaption", {}, h("b", {}, "False positives over recall"), ", logarithmic"), curves[1])),
    levelControl(level, update),
    table);
}

const LEVEL_STEPS = 200;

// The score down to which detections are kept: a mark on every curve, and a row for every class. Steps are scores at
// which another object is found: between them only false positives are added.
function scoreLevel(params, judged) {
  const isHit = (curve, k) => curve.recall[k] > (k ? curve.recall[k - 1] : 0);
  const hits = judged.flatMap(({ curve }) => curve.score.filter((_, k) => isHit(curve, k)));
  const scores = [...new Set(hits)].sort((a, b) => b - a);
  const n = Math.min(LEVEL_STEPS, scores.length);
  const steps = Array.from({ length: n }, (_, k) => scores[Math.round((k * (scores.length - 1)) / Math.max(1, n - 1))]);
  const wanted = params.has("at") ? Number(params.get("at")) : balanced(steps, judged);
  const position = Math.max(0, steps.findLastIndex((value) => value >= wanted));
  return { steps, position, get value() { return this.steps[this.position] ?? 0; } };
}

// The score at which the harmonic means of precision and recall are highest, over all classes.
function balanced(steps, judged) {
  const goodness = (value) =>
    judged.reduce((sum, each) => {
      const point = atLevel(each.curve, value);
      return sum + (point ? (2 * point.precision * point.recall) / (point.precision + point.recall || 1) : 0);
    }, 0);
  const best = steps.map((value) => [goodness(value), value]).reduce((a, b) => (b[0] > a[0] ? b : a), [-1, 0]);
  return best[1];
}

function atLevel(curve, value) {
  let last = -1;
  while (last + 1 < curve.score.length && curve.score[last + 1] >= value) last += 1;
  if (last < 0) return null;
  return { recall: curve.recall[last], precision: curve.precision[last], false_positives: curve.false_positives[last] };
}

function levelControl(level, update) {
  if (level.steps.length < 2) return null;
  const output = h("output", {});
  const link = h("a", {}, "Show these detections");
  const label = "Keep detections with a score of at least";
  const slider = h("input", { type: "range", min: 0, max: level.steps.length - 1, value: level.position, "aria-label": label });
  const say = () => {
    output.textContent = scored(level.value);
    slider.setAttribute("aria-valuetext", scored(level.value));
    link.href = address("detections", { min: Number(level.value.toPrecision(4)) });
  };
  slider.addEventListener("input", () => {
    level.position = Number(slider.value);
    history.replaceState(history.state, "", changedAddress({ at: Number(level.value.toPrecision(6)) }));
    say();
    update();
  });
  say();
  const ends = [h("span", { class: "dim small" }, "surest only"), h("span", { class: "dim small" }, "nearly all")];
  return h("div", { class: "control" }, h("span", {}, `${label} `, output), ends[0], slider, ends[1], link);
}

function levelTable(judged, level) {
  const rows = judged.map((each) => {
    const point = atLevel(each.curve, level.value);
    const precision = point ? percent(point.precision) : "–";
    return [each.name, percent(point?.recall ?? 0), precision, count(point?.false_positives ?? 0)];
  });
  const caption = `Detections with a score of at least ${scored(level.value)}`;
  return [
    dataTable(caption, ["class", "recall", "precision", "false positives"], rows),
    h("p", { class: "dim small" }, TEXTS.level),
  ];
}

function legend(colours, chosen, judged) {
  const named = (each) => `${each.name} (${percent(each.average_precision)})`;
  const items = [...colours].map(([each, style]) => h("li", {}, swatch(style), named(each)));
  const options = [["", "all classes"], ...judged.map((each) => [each.name, each.name])];
  const pick = choice("class", "Highlight", options, chosen?.name ?? "");
  pick.addEventListener("change", ({ target }) => go(changedAddress({ class: target.value })));
  return h("div", { class: "control" },
    h("ul", { class: "legend", "aria-label": "Classes and their average precision" }, items),
    colours.size < judged.length && h("span", { class: "dim small" }, "grey: other classes"),
    judged.length > 1 && pick);
}

const share = (value) => `${Math.round(100 * value)} %`;
const RECALL = { min: 0, max: 1, title: "recall: share of the objects that are found", format: share };

function precisionChart(drawn, styleOf, level) {
  const named = drawn.map((each) => `${each.name} ${percent(each.average_precision)}`);
  const label = `Precision over recall. Average precision: ${named.join(", ")}.`;
  const lines = drawn.map((each) => {
    const points = each.curve.recall.map((value, k) => [value, each.curve.precision[k]]);
    const ends = points.length ? [[0, points[0][1]], ...points, [points.at(-1)[0], 0]] : [];
    return { points: ends, style: styleOf(each) };
  });
  const y = { min: 0, max: 1, format: share };
  const marks = () => marksOf(drawn, styleOf, level, (point) => point.precision);
  return responsive((width) => lineChart({ label, lines, marks: marks(), x: RECALL, y })(width));
}

function falsePositiveChart(drawn, styleOf, level) {
  const most = Math.max(10, ...drawn.map((each) => each.curve.false_positives.at(-1) ?? 0));
  const label = `False positives over recall, up to ${count(most)}.`;
  const lines = drawn.map((each) => {
    const points = each.curve.recall.map((value, k) => [value, each.curve.false_positives[k]]);
    return { points, style: styleOf(each) };
  });
  const y = { min: 0, max: most, format: count, scale: LOG_FROM_ZERO };
  const marks = () => marksOf(drawn, styleOf, level, (point) => point.false_positives);
  return responsive((width) => lineChart({ label, lines, marks: marks(), x: RECALL, y })(width));
}

function marksOf(drawn, styleOf, level, height) {
  return drawn.flatMap((each) => {
    const point = atLevel(each.curve, level.value);
    return point && styleOf(each) !== "pale" ? [{ point: [point.recall, height(point)], style: styleOf(each) }] : [];
  });
}

function errorSection() {
  const link = (id, kind, n) => h("a", { href: address("detections", withClass(id, { kind, among: "surest" })) }, count(n));
  const rows = data.classes.flatMap((each, id) => {
    const counts = each.top_errors;
    if (!counts) return [];
    const kinds = counts.kinds.map(([kind, n]) => (n ? link(id, kind, n) : "0"));
    return [[each.name, count(each.n_objects), count(counts.n_hits), ...kinds, count(counts.n_missed)]];
  });
  return h("section", {},
    h("h2", {}, "What went wrong"),
    h("p", { class: "dim" }, TEXTS.errors),
    dataTable("Errors by kind", ["class", "objects", "hits", ...WRONG, "missed by these"], rows));
}

const [LOSS, BOUND] = ["c1 solid", "c0 solid"];

function searchSection() {
  const searched = data.classes.filter((each) => each.search);
  if (!searched.length) return null;
  const told = searched.filter((each) => each.search.history.length);
  const floors = searched.filter((each) => each.search.floors.length > 1);
  return h("section", {},
    h("h2", {}, "The thresholds, and how far from the best they can be"),
    h("p", { class: "dim" }, TEXTS.search(searched.some((each) => each.search.across_images))),
    told.length + floors.length > 0 && h("ul", { class: "legend" },
      h("li", {}, swatch(LOSS), "loss of the best thresholds"), h("li", {}, swatch(BOUND), "lower bound")),
    told.length > 0 && h("div", { class: "charts small-ones" }, told.map(historyFigure)),
    floors.length > 0 && [
      h("h3", {}, "If a few positives may be left out"),
      h("p", { class: "dim" }, TEXTS.floors),
      h("div", { class: "charts small-ones" }, floors.map(floorFigure)),
    ]);
}

function historyFigure(each) {
  const { history: points, seconds, loss, lower_bound } = each.search;
  const [begin, end] = [points[0][0], Math.max(seconds, points.at(-1)[0]) || 1];
  const isLong = begin > 0 && end > 20 * begin; // most of the story is in the first moments
  const along = (k) => [...points.map((point) => [point[0], point[k]]), [end, points.at(-1)[k]]];
  const ending = `loss ${amount(loss)}, bound ${amount(lower_bound)}; ${statusText(each.search)} after ${short(seconds)} s`;
  const draw = lineChart({
    label: `${each.name}: ${ending}`,
    height: 210,
    x: { min: begin < end ? begin : 0, max: end, scale: isLong ? LOG : LINEAR, title: "seconds", format: short },
    y: { min: 0, max: Math.max(1, ...points.map((point) => point[1])) * 1.05, format: amount },
    lines: [{ points: along(1), style: LOSS, step: true }, { points: along(2), style: BOUND, step: true }],
    area: { upper: along(1), lower: along(2), step: true },
  });
  return h("figure", {}, h("figcaption", {}, h("b", {}, each.name), `: ${ending}`), responsive(draw));
}

// Between two floors the loss of the higher one can be had, and the bound of the lower one holds: both lines are stairs.
function floorFigure(each) {
  const { floors } = each.search;
  const [first, last] = [floors[0], floors.at(-1)];
  const left = (floor) => 1 - floor.floor;
  const losses = floors.flatMap((floor, k) => [[left(floor), floors[Math.max(0, k - 1)].loss], [left(floor), floor.loss]]);
  const bounds = floors.flatMap((floor, k) =>
    [[left(floors[Math.max(0, k - 1)]), floor.lower_bound], [left(floor), floor.lower_bound]]);
  const told = floors.map((floor) => `loss ${amount(floor.loss)} at recall ${percent(floor.floor)}`);
  const draw = lineChart({
    label: `${each.name}: ${told.join(", ")}`,
    height: 210,
    x: {
      min: 0, max: Math.max(...floors.map(left)), scale: LOG_SHARE,
      title: "positives that may be left out", format: (value) => `${100 * value} %`,
    },
    y: { min: 0, max: Math.max(1, first.loss) * 1.05, format: amount },
    lines: [{ points: losses, style: LOSS }, { points: bounds, style: BOUND }],
    area: { upper: losses, lower: bounds },
  });
  const ends = `loss ${amount(first.loss)} at recall ${share(first.floor)}, ${amount(last.loss)} at ${share(last.floor)}`;
  return h("figure", {}, h("figcaption", {}, h("b", {}, each.name), `: ${ends}`), responsive(draw));
}

function optionSection() {
  if (!data.options.length) return null;
  const table = dataTable("Options", ["option", "value"], data.options);
  return h("details", {}, h("summary", {}, "All options of the model"), table);
}
