// All exemplars with their thresholds and what they cover, and the page of one of them.

const EXEMPLAR_SORTS = {
  "": ["positives it is responsible for", (e) => -(e.coverage?.positives_responsible ?? 0)],
  wins: ["detections won", (e) => -e.n_detections],
  right: ["right detections", (e) => -e.n_right],
  wrong: ["wrong detections", (e) => -e.n_wrong],
  negatives: ["negatives accepted", (e) => -(e.coverage?.negatives_accepted ?? 0)],
  threshold: ["threshold, lowest first", (e) => e.threshold ?? Infinity],
  model: ["place in the model", () => 0],
};

function chosenExemplars(params) {
  const [id, state, text] = [chosenClass(params), params.get("state"), (params.get("name") ?? "").toLowerCase()];
  const sort = params.get("sort") ?? "";
  const [, key] = EXEMPLAR_SORTS[Object.hasOwn(EXEMPLAR_SORTS, sort) ? sort : ""];
  const fits = (exemplar, k) =>
    (id === null || exemplar.class_id === id) &&
    (!state || exemplar.state === state) &&
    numberedName(k).toLowerCase().includes(text);
  const numbers = data.exemplars.map((_, k) => k).filter((k) => fits(data.exemplars[k], k));
  return numbers.sort((a, b) => key(data.exemplars[a]) - key(data.exemplars[b]) || a - b);
}

function exemplarFields(params) {
  const present = Object.keys(STATES).filter((each) => data.exemplars.some((exemplar) => exemplar.state === each));
  const states = [["", "all"], ...present.map((each) => [each, STATES[each].word])];
  const sorts = Object.entries(EXEMPLAR_SORTS).map(([name, [label]]) => [name, label]);
  return [
    classChoice(params),
    present.length > 1 && choice("state", "State", states, params.get("state") ?? ""),
    h("label", {}, "Name contains", h("input", { type: "search", name: "name", value: params.get("name") ?? "" })),
    choice("sort", "Sort by", sorts, params.get("sort") ?? ""),
  ];
}

function exemplarsView(params, memory) {
  const numbers = chosenExemplars(params);
  const hasCoverage = data.exemplars.some((exemplar) => exemplar.coverage);
  return [
    heading("Exemplars"),
    h("p", { class: "dim" }, TEXTS.exemplars),
    filterForm(exemplarFields(params), "Choose exemplars"),
    hasCoverage && numbers.length > 0 && coverageFigure(numbers),
    h("p", { role: "status", class: "dim" }, `${counted(numbers.length, "exemplar")}.`),
    growingList(numbers, exemplarCard, { shown: memory.shown }),
  ];
}

const MOST_BARS = 300;

// Who is responsible for the positives, the busiest first.
function coverageFigure(numbers) {
  const busy = (k) => data.exemplars[k].coverage?.positives_responsible ?? 0;
  const sorted = numbers.slice().sort((a, b) => busy(b) - busy(a));
  const shown = sorted.slice(0, MOST_BARS);
  const most = Math.max(1, ...shown.map(busy));
  const label = coverageText(sorted, busy);
  const draw = (width) => {
    const height = 110;
    const step = Math.min(width / shown.length, 26);
    const bars = shown.map((k, place) => {
      const length = busy(k) ? Math.max(2, ((height - 4) * busy(k)) / most) : 3;
      const frame = { x: place * step, width: Math.max(step - (step > 5 ? 2 : 0.5), 1), y: height - length, height: length };
      const bar = s("rect", { class: busy(k) ? "bar-positive" : "bar-redundant", ...frame });
      const name = `${numberedName(k)}: ${counted(busy(k), "positive")}`;
      // For the mouse alone: hundreds of stops would be in the way of the keyboard, which has the cards below.
      return s("a", { href: exemplarAddress(k), tabindex: -1 }, s("title", {}, name), bar);
    });
    return s("svg", { class: "bars", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, bars);
  };
  const rest = sorted.length > shown.length ? ` The busiest ${MOST_BARS} are drawn.` : "";
  return h("figure", {}, h("figcaption", {}, h("b", {}, "Coverage. "), label, rest), responsive(draw));
}

function coverageText(numbers, busy) {
  const nBusy = numbers.filter((k) => busy(k) > 0).length;
  const nRedundant = numbers.filter((k) => data.exemplars[k].state === "redundant").length;
  const nWindows = numbers.reduce((sum, k) => sum + busy(k), 0);
  return (
    `${count(nBusy)} of ${counted(numbers.length, "exemplar")} are responsible for ` +
    `${counted(nWindows, "positive training window")}; ${count(nRedundant)} are redundant.`
  );
}

function exemplarView(params, memory, number) {
  const exemplar = data.exemplars[number];
  if (!exemplar) {
    return [heading("There is no such exemplar"), h("p", {}, h("a", { href: address("exemplars") }, "All exemplars"))];
  }
  const won = data.detections.map((_, k) => k).filter((k) => data.detections[k].exemplar === number);
  openLists.d = won;
  const isLast = number + 1 === data.exemplars.length;
  return [
    h("div", { class: "crumbs" },
      h("a", { href: address("exemplars", withClass(exemplar.class_id)) }, `All exemplars of ${className(exemplar.class_id)}`),
      h("span", { class: "apart" },
        number > 0 && h("a", { href: exemplarAddress(number - 1), rel: "prev" }, "← previous"),
        !isLast && h("a", { href: exemplarAddress(number + 1), rel: "next" }, "next →"))),
    heading(numberedName(number)),
    h("div", { class: "two" },
      exemplarShot(exemplar, { withAnnotation: true }),
      h("div", {}, exemplarFacts(exemplar, number), handedFacts(exemplar), exemplar.scores && scoreFigure(exemplar))),
    exemplar.coverage && coverageSection(exemplar, number),
    h("h3", {}, "What it fires on"),
    wonSection(exemplar, number, won, memory),
  ];
}

function exemplarFacts(exemplar, number) {
  const state = STATES[exemplar.state];
  return factList([
    ["class", className(exemplar.class_id)],
    ["training image", exemplar.image_id],
    ["number in the model", `${number}, as in the column exemplar of files of detections`],
    ["size", `${short(exemplar.width)} × ${short(exemplar.height)} pixels`],
    ["state", [chip(state.word, state.tone), ` ${state.why}`]],
    exemplar.threshold !== null && ["threshold", short(exemplar.threshold)],
  ]);
}

function handedFacts(exemplar) {
  const names = (entries) => [...new Set(entries.map(([name]) => name))].join(", ");
  const rows = [
    ...exemplar.labels,
    exemplar.outline && ["mask", "yellow in the picture"],
    exemplar.parts.length > 0 && ["parts", `${names(exemplar.parts)} (pink)`],
    exemplar.keypoints.length > 0 && ["keypoints", names(exemplar.keypoints)],
  ].filter(Boolean);
  if (!rows.length) return null;
  return h("details", { open: rows.length < 7 }, h("summary", {}, "What it transfers"), factList(rows));
}

function scoreFigure(exemplar) {
  const caption = [h("b", {}, "Scores of training windows. "), h("span", { class: "dim" }, TEXTS.scores)];
  return h("figure", {}, h("figcaption", {}, caption), scoreChart(exemplar));
}

function coverageSection(exemplar, number) {
  const { coverage } = exemplar;
  const windows = ([other, n]) => [other, `${n} of ${data.exemplars[other].n_windows}`];
  const own = counted(exemplar.n_windows, "positive window");
  const coverers = coverersOf(number);
  return [
    h("h3", {}, "What it covers in training"),
    exemplar.threshold !== null && h("p", {}, acceptedText(coverage)),
    h("p", { class: "dim" }, responsibleText(coverage)),
    thumbs(coverage.objects.slice(0, 60).map(windows), "large"),
    coverers.length > 0 && h("p", { class: "dim" }, `Its own ${own} are covered by:`),
    coverers.length > 0 && thumbs(coverers.slice(0, 30).map(([k, n]) => [k, `× ${n}`]), "large"),
  ];
}

// Exemplars that are responsible for windows of an object, those of most windows first.
function coverersOf(number) {
  const found = data.exemplars.flatMap((each, k) => {
    const entry = each.coverage?.objects.find(([other]) => other === number);
    return entry ? [[k, entry[1]]] : [];
  });
  return found.sort((a, b) => b[1] - a[1]);
}

function acceptedText(coverage) {
  const positives = counted(coverage.positives_accepted, "positive training window");
  const negatives = counted(coverage.negatives_accepted, "negative one");
  const alone = `, ${count(coverage.negatives_accepted_alone)} of which nobody else accepts`;
  return `Its threshold accepts ${positives} and ${negatives}${coverage.negatives_accepted ? alone : ""}.`;
}

function responsibleText(coverage) {
  if (!coverage.positives_responsible) return "It is responsible for no positive window.";
  const windows = counted(coverage.positives_responsible, "window");
  const elsewhere = ` ${counted(coverage.n_elsewhere, "window")} of them show an object that is no exemplar.`;
  const text = `It is responsible for ${windows} of these objects: ${TEXTS.responsible}`;
  return `${text}${coverage.n_elsewhere ? elsewhere : ""}`;
}

function wonSection(exemplar, number, won, memory) {
  const shown = won.length < exemplar.n_detections ? ` ${count(won.length)} of them are in this report.` : "";
  const link = h("a", { href: address("detections", { exemplar: number }) }, "Filter and sort them");
  return [
    h("p", {}, `It ${winsText(exemplar)}.${shown} `, won.length > 1 && link),
    won.length > 0 && growingList(won, detectionCard, { shown: memory.shown }),
  ];
}
