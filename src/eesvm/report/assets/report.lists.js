// Cards of detections, missed objects and exemplars, in lists that grow as they are scrolled.

const FIRST_CARDS = 36;

// Detections and missed objects that arrows walk through in the dialog: those of the list that was opened last.
const openLists = { d: data.detections.map((_, k) => k), m: data.missed.map((_, k) => k) };

const growObserver = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => entry.target.click()),
  { rootMargin: "600px" },
);

// A list that shows the first items and, when its end comes near, more. `shown` is where an earlier visit had got to.
function growingList(items, card, { style = "", shown = 0, isGrowing = true } = {}) {
  const list = h("ul", { class: `grid ${style}` });
  const status = h("span", { role: "status", class: "dim small" });
  const button = h("button", { type: "button", class: "more", onclick: () => grow(FIRST_CARDS) }, "Show more");
  const grow = (n) => {
    const start = list.childElementCount;
    list.append(...items.slice(start, start + n).map(card));
    const left = items.length - list.childElementCount;
    button.hidden = left === 0;
    status.textContent = left ? `${count(list.childElementCount)} of ${count(items.length)} shown` : "";
    if (left === 0) growObserver.unobserve(button);
  };
  grow(Math.max(FIRST_CARDS, shown));
  if (isGrowing && !button.hidden) growObserver.observe(button);
  return h("div", { class: "growing" }, list, button, " ", status);
}

const chip = (text, tone) => h("span", { class: `chip ${tone}` }, text);

function kindChip(kind) {
  const { word, mark, tone } = KINDS[kind];
  return chip(mark ? `${mark} ${word}` : word, tone);
}

const exemplarLink = (number) => h("a", { href: exemplarAddress(number) }, numberedName(number));

function detectionCard(number) {
  const detection = data.detections[number];
  const isKnown = detection.exemplar !== null;
  const exemplar = isKnown ? data.exemplars[detection.exemplar] : null;
  return h(
    "li",
    { class: "card detection" },
    h("div", { class: isKnown ? "pictures" : "pictures one" },
      h("a", { class: "picture", href: changedAddress({ open: `d${number}` }) }, detectionShot(detection)),
      isKnown && h("a", { class: "picture", href: exemplarAddress(detection.exemplar) }, exemplarShot(exemplar))),
    h("p", { class: "line-1" },
      h("span", { class: "name" }, className(detection.class_id)),
      h("span", { class: "score" }, scored(detection.score)),
      data.has_truth && kindChip(detection.kind)),
    h("p", { class: "looks" }, isKnown ? ["looks like ", exemplarLink(detection.exemplar)] : "no exemplar is named"),
  );
}

function missedCard(number) {
  const missed = data.missed[number];
  return h(
    "li",
    { class: "card" },
    h("a", { class: "picture", href: changedAddress({ open: `m${number}` }) }, missedShot(missed)),
    h("p", { class: "line-1" },
      h("span", { class: "name" }, className(missed.class_id)),
      h("span", { class: "dim" }, data.scenes[missed.scene].image_id)),
    h("p", { class: "looks" }, nearText(missed)),
  );
}

const stateChip = (exemplar) => chip(STATES[exemplar.state].word, STATES[exemplar.state].tone);

// Training objects by their pictures, each with a text below.
function thumbs(entries, style = "") {
  const items = entries.map(([number, text]) =>
    h("li", {}, h("a", { href: exemplarAddress(number) },
      exemplarShot(data.exemplars[number]), h("span", { class: "badge" }, text))));
  return h("ul", { class: `thumbs ${style}` }, items);
}

function exemplarCard(number) {
  const exemplar = data.exemplars[number];
  const { coverage } = exemplar;
  const href = exemplarAddress(number);
  const covers = coverage &&
    `responsible for ${counted(coverage.positives_responsible, "positive")}, ` +
    `accepts ${counted(coverage.negatives_accepted, "negative")}`;
  return h(
    "li",
    { class: "card" },
    h("div", { class: "pictures" },
      h("a", { class: "picture", href }, exemplarShot(exemplar, { withAnnotation: true })),
      h("div", {}, sparkline(exemplar),
        covers && h("p", { class: "small" }, covers),
        h("p", { class: "small dim" }, winsText(exemplar)))),
    h("p", { class: "line-1" }, h("a", { class: "name", href }, numberedName(number)), stateChip(exemplar)),
    coverage && coverage.objects.length > 0 && thumbs(coverage.objects.slice(0, 6).map(([k, n]) => [k, `× ${n}`])),
  );
}

// Filters: fields whose values are parameters of the address.

function choice(name, label, options, value) {
  const nodes = options.map(([key, text]) => h("option", { value: key, selected: key === value }, text));
  return h("label", {}, label, h("select", { name }, nodes));
}

const classChoice = (params) => {
  if (data.classes.length < 2) return null;
  const id = chosenClass(params);
  const options = data.classes.map((each) => [each.name, each.name]);
  return choice("class", "Class", [["", "all classes"], ...options], id === null ? "" : className(id));
};

// A form that writes its fields into the address. A slider does so while it moves, without a step in the history.
function filterForm(fields, label) {
  const form = h("form", { class: "filters", "aria-label": label, onsubmit: (event) => event.preventDefault() }, fields);
  form.addEventListener("change", ({ target }) => {
    if (target.name && target.type !== "range") go(changedAddress({ [target.name]: target.value, open: null }));
  });
  return form;
}

// An exemplar by its name, with those of the model to choose from.
function exemplarField(params) {
  const chosen = chosenExemplar(params);
  const list = h("datalist", { id: "exemplar-names" });
  const value = chosen === null ? "" : numberedName(chosen);
  const names = { list: "exemplar-names", placeholder: "all exemplars", autocomplete: "off" };
  const input = h("input", { type: "search", value, ...names });
  const namesOf = (exemplar, k) => [exemplarName(exemplar), `#${k}`, numberedName(k)].map((name) => [name, k]);
  const numbers = new Map(data.exemplars.flatMap(namesOf));
  input.addEventListener("focus", () => {
    if (!list.childElementCount) list.append(...data.exemplars.map((_, k) => h("option", { value: numberedName(k) })));
  });
  input.addEventListener("change", () => {
    const number = numbers.get(input.value.trim());
    if (number !== undefined || !input.value.trim()) go(changedAddress({ exemplar: number ?? null, open: null }));
    input.setCustomValidity(number === undefined && input.value.trim() ? "There is no exemplar of this name." : "");
    input.reportValidity();
  });
  return h("label", {}, "Exemplar", input, list);
}
