// The lists of detections and of missed objects, and further sections.
// A view takes the parameters of the address and what is known of an earlier visit, and gives elements.

const heading = (text) => h("h2", { id: "view-title", tabindex: -1 }, text);

function detectionOrder(name) {
  const of = (k) => data.detections[k];
  const byScore = (a, b) => of(b).score - of(a).score;
  const orders = {
    lowest: (a, b) => -byScore(a, b),
    image: (a, b) => of(a).scene - of(b).scene || byScore(a, b),
    class: (a, b) => of(a).class_id - of(b).class_id || byScore(a, b),
    exemplar: (a, b) => (of(a).exemplar ?? Infinity) - (of(b).exemplar ?? Infinity) || byScore(a, b),
    overlap: (a, b) => (of(a).iou ?? 0) - (of(b).iou ?? 0) || byScore(a, b),
  };
  return Object.hasOwn(orders, name) ? orders[name] : byScore;
}

function chosenDetections(params) {
  const [id, exemplar, kind] = [chosenClass(params), chosenExemplar(params), params.get("kind")];
  const isSurest = params.get("among") === "surest";
  const least = params.has("min") ? Number(params.get("min")) : -Infinity;
  const fits = (detection) =>
    (id === null || detection.class_id === id) &&
    (exemplar === null || detection.exemplar === exemplar) &&
    (!kind || detection.kind === kind || (kind === "wrong" && WRONG.includes(detection.kind))) &&
    (!isSurest || detection.is_surest) &&
    !(detection.score < least);
  const numbers = data.detections.map((_, k) => k).filter((k) => fits(data.detections[k]));
  return numbers.sort(detectionOrder(params.get("sort")));
}

const SCORE_STEPS = 200;

function scoreField(params, update) {
  const scores = data.detections.map((detection) => detection.score);
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  const least = Math.max(low, Number(params.get("min") ?? low));
  const output = h("span", { class: "value" }, short(least)); // an output would take the label for itself
  const position = Math.round((SCORE_STEPS * (least - low)) / (high - low || 1));
  const slider = h("input", { type: "range", min: 0, max: SCORE_STEPS, value: position });
  slider.addEventListener("input", () => {
    const share = Number(slider.value) / SCORE_STEPS;
    const value = share === 0 ? null : Number((low + (high - low) * share).toPrecision(4));
    output.textContent = short(value ?? low);
    slider.setAttribute("aria-valuetext", short(value ?? low));
    history.replaceState(history.state, "", changedAddress({ min: value, open: null }));
    update();
  });
  return h("label", {}, h("span", {}, "Score at least ", output), slider);
}

const KIND_OPTIONS = [
  ["", "right and wrong"],
  ["right", "right"],
  ["wrong", "wrong, of any kind"],
  ...WRONG.map((kind) => [kind, `wrong: ${kind}`]),
  ["ignored", "not counted"],
  ["unjudged", "not judged"],
];
const AMONG_OPTIONS = [["", "all that are shown"], ["surest", "N surest for N objects"]];
const SORT_OPTIONS = [
  ["", "score, highest first"],
  ["lowest", "score, lowest first"],
  ["class", "class"],
  ["image", "image"],
  ["exemplar", "exemplar"],
];

function detectionFields(params, update) {
  const sorts = data.has_truth ? [...SORT_OPTIONS, ["overlap", "overlap, lowest first"]] : SORT_OPTIONS;
  return [
    classChoice(params),
    data.has_truth && choice("kind", "Judged", KIND_OPTIONS, params.get("kind") ?? ""),
    data.has_truth && choice("among", "Among", AMONG_OPTIONS, params.get("among") ?? ""),
    exemplarField(params),
    scoreField(params, update),
    choice("sort", "Sort by", sorts, params.get("sort") ?? ""),
    h("a", { class: "button", href: address("detections") }, "Clear"),
  ];
}

function detectionsView(params, memory) {
  const title = params.get("kind") === "wrong" ? "False positives" : "Detections";
  const all = data.detections.length;
  if (!all) return [heading(title), h("p", {}, "Nothing was detected.")];
  const place = h("div", {});
  const update = (shown = 0) => {
    const numbers = chosenDetections(readAddress().params);
    openLists.d = numbers;
    const text = `${numbers.length === all ? "" : `${count(numbers.length)} of `}${counted(all, "detection")}.`;
    place.replaceChildren(
      h("p", { role: "status", class: "dim" }, text),
      numbers.length ? growingList(numbers, detectionCard, { shown }) : h("p", {}, "No detection fits these filters."),
    );
  };
  update(memory.shown);
  return [
    heading(title),
    h("p", { class: "dim" }, TEXTS.detections, data.has_truth && TEXTS.frames),
    filterForm(detectionFields(params, update), "Choose detections"),
    place,
  ];
}

function missedView(params, memory) {
  const id = chosenClass(params);
  const numbers = data.missed.map((_, k) => k).filter((k) => id === null || data.missed[k].class_id === id);
  if (params.get("sort") === "near") numbers.sort((a, b) => data.missed[b].best_iou - data.missed[a].best_iou);
  openLists.m = numbers;
  const sorts = [["", "farthest from any detection first"], ["near", "nearest to a detection first"]];
  const fields = [classChoice(params), choice("sort", "Sort by", sorts, params.get("sort") ?? "")];
  return [
    heading("Missed objects"),
    h("p", { class: "dim" }, TEXTS.missed),
    data.missed.length > 0 && filterForm(fields, "Choose missed objects"),
    numbers.length
      ? growingList(numbers, missedCard, { style: "narrow", shown: memory.shown })
      : h("p", {}, "No object was missed."),
  ];
}

function sectionsView() {
  const sections = data.sections.map((section) => h("section", {},
    h("h3", {}, section.title),
    section.paragraphs.map((text) => h("p", {}, text)),
    section.tables.map((table) => dataTable(table.caption, table.header, table.rows, table.is_prose ? "prose" : null)),
    section.pictures.map((picture) => h("figure", { class: "section-picture" },
      h("img", { src: blobUrl("image/png", picture.png), alt: picture.alt, loading: "lazy" }),
      h("figcaption", {}, picture.caption)))));
  return [heading("Tables"), sections];
}

// The first column names the rows. A table that is wider than the page is scrolled by itself, with the keyboard too.
function dataTable(caption, header, rows, style = null) {
  const cell = (content, k) => (k ? h("td", {}, content) : h("th", { scope: "row" }, content));
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    h("table", { class: style },
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, header.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell))))));
}

function factList(rows) {
  const items = rows.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
  return h("dl", { class: "table" }, items);
}
