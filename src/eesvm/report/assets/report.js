// Which view is shown, and the dialog over it. Links are plain links to addresses; back and forward just work.

const VIEWS = {
  summary: summaryView,
  detections: detectionsView,
  missed: missedView,
  exemplars: exemplarsView,
  exemplar: exemplarView,
  tables: sectionsView,
};

const main = document.getElementById("main");
const dialog = document.getElementById("dialog");
let shownAddress = null; // without what is open in the dialog
let isOpenedHere = false; // whether going back closes the dialog

function go(hash) {
  remember();
  location.hash = hash;
}

// What a visit to this view would need to look the same: how far a list had grown, and where the page was scrolled to.
function remember() {
  const list = main.querySelector(".growing .grid");
  history.replaceState({ shown: list?.childElementCount ?? 0, scroll: scrollY }, "");
}

function render() {
  const { view, number, params } = readAddress();
  const open = params.get("open");
  params.delete("open");
  const wanted = address(view, params, number);
  if (wanted !== shownAddress) {
    const isFirst = shownAddress === null;
    shownAddress = wanted;
    showView(view, number, params, isFirst);
  }
  showDialog(open);
}

function showView(view, number, params, isFirst) {
  const memory = history.state ?? {};
  const make = Object.hasOwn(VIEWS, view) ? VIEWS[view] : nowhereView;
  const content = make(params, memory, number);
  main.replaceChildren(...[content].flat(Infinity).filter((node) => node instanceof Node));
  showTabs(view, params);
  document.body.classList.toggle("is-summary", view === "summary");
  const title = document.getElementById("view-title");
  document.title = view === "summary" || !title ? data.title : `${title.textContent} – ${data.title}`;
  if (memory.scroll !== undefined) scrollTo(0, memory.scroll);
  else if (!isFirst) {
    scrollTo(0, Math.min(scrollY, main.offsetTop - document.querySelector("nav").offsetHeight)); // the tabs stay in place
    title?.focus({ preventScroll: true });
  }
}

const nowhereView = () => [heading("There is no such page"), h("p", {}, h("a", { href: "#/" }, "Summary"))];

// A tab says how many there are, and how many of them are in this report where that is fewer.
const ofAll = (shown, all) => (shown < all ? `${count(shown)} of ${count(all)}` : count(shown));

function showTabs(view, params) {
  const isWrong = view === "detections" && params.get("kind") === "wrong";
  const shownWrong = data.detections.filter((each) => WRONG.includes(each.kind)).length;
  const kinds = data.classes.flatMap((each) => each.errors?.kinds ?? []);
  const nWrong = kinds.reduce((sum, [, n]) => sum + n, 0);
  const tabs = [
    ["Summary", "#/", null, view === "summary"],
    ["Detections", address("detections"), ofAll(data.detections.length, data.n_detections), view === "detections" && !isWrong],
    data.has_truth && ["False positives", address("detections", { kind: "wrong" }), ofAll(shownWrong, nWrong), isWrong],
    data.has_truth && ["Missed", address("missed"), ofAll(data.missed.length, data.n_missed), view === "missed"],
    ["Exemplars", address("exemplars"), count(data.exemplars.length), view === "exemplars" || view === "exemplar"],
    data.sections.length > 0 && ["Tables", address("tables"), null, view === "tables"],
  ];
  const items = tabs.filter(Boolean).map(([text, href, n, isCurrent]) => {
    const number = n !== null && h("span", { class: "count" }, ` ${n}`);
    return h("li", {}, h("a", { href, "aria-current": isCurrent ? "page" : null }, text, number));
  });
  const list = document.getElementById("tabs");
  list.replaceChildren(...items);
  const current = list.querySelector("[aria-current]");
  if (current) list.scrollLeft = current.offsetLeft - 60; // on a phone not all of them fit
}

// The dialog: a detection (d12) or a missed object (m3) in its whole image.

function showDialog(open) {
  const kind = open?.[0];
  const number = Number(open?.slice(1));
  const item = kind === "d" ? data.detections[number] : kind === "m" ? data.missed[number] : undefined;
  if (!item) {
    if (dialog.open) dialog.close();
    return;
  }
  const content = kind === "d" ? detectionDialog(item) : missedDialog(item);
  dialog.replaceChildren(dialogHead(kind, number, content.title), content.body);
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

function dialogHead(kind, number, title) {
  const list = openLists[kind];
  const place = list.indexOf(number);
  const step = (by, word, sign) => {
    const next = place < 0 ? undefined : list[place + by];
    return h("button", { type: "button", disabled: next === undefined, "data-step": by, "aria-label": word, onclick: () => {
      history.replaceState(history.state, "", changedAddress({ open: `${kind}${next}` }));
      render();
      (dialog.querySelector(`[data-step="${by}"]:not([disabled])`) ?? dialog.querySelector("[data-close]")).focus();
    } }, by < 0 && sign, h("span", { class: "wide" }, ` ${word} `), by > 0 && sign);
  };
  return h("div", { class: "dialog-head" },
    h("h2", { id: "dialog-title" }, title),
    place >= 0 && h("span", { class: "dim small" }, `${count(place + 1)} of ${count(list.length)}`),
    step(-1, "Previous", "←"), step(1, "Next", "→"),
    h("button", { type: "button", "data-close": true, autofocus: true, onclick: () => dialog.close() }, "Close"));
}

const layers = { handed: true, laid: false, objects: true, others: false };

function sceneBody(draw, sideNodes, switches) {
  const place = h("div", {});
  const paint = () => place.replaceChildren(draw());
  const boxes = switches.map(([name, text]) => {
    const box = h("input", { type: "checkbox", checked: layers[name] });
    box.addEventListener("change", () => {
      layers[name] = box.checked;
      paint();
    });
    return h("label", {}, box, text);
  });
  paint();
  return h("div", { class: "dialog-body" }, h("div", {}, place, h("div", { class: "switches" }, boxes)), h("div", {}, sideNodes));
}

const objectNodes = (scene) => scene.objects.flatMap((object) => boxNode(object.box, "object"));

function otherNodes(sceneNumber, except) {
  const others = data.detections.filter((each) => each.scene === sceneNumber && each !== except);
  return others.flatMap((each) => boxNode(each.box, `${KINDS[each.kind].tone} thin`));
}

function detectionDialog(detection) {
  const scene = data.scenes[detection.scene];
  const exemplar = detection.exemplar === null ? null : data.exemplars[detection.exemplar];
  const draw = () => sceneShot(scene, [0, 0, scene.width, scene.height], [
    layers.others ? otherNodes(detection.scene, detection) : [],
    layers.objects ? objectNodes(scene) : [],
    layers.laid && exemplar ? laidOver(exemplar, detection.box) : [],
    layers.handed && exemplar
      ? handedNodes(exemplar, detection.box, scene.width / 110, inheritedMask(detection, exemplar))
      : [],
    boxNode(detection.box, KINDS[detection.kind].tone),
  ], detectionLabel(detection), true);
  const switches = [
    exemplar && (exemplar.outline || exemplar.parts.length || exemplar.keypoints.length) && ["handed", "mask and parts"],
    exemplar && exemplar.image !== null && ["laid", "lay the exemplar over it"],
    scene.objects.length > 0 && ["objects", "annotated objects"],
    ["others", "other detections"],
  ].filter(Boolean);
  const side = [
    data.has_truth && h("p", {}, kindChip(detection.kind), " ", verdictText(detection)),
    exemplar && [h("p", {}, "It looks like ", exemplarLink(detection.exemplar), "."),
      h("a", { class: "picture", href: exemplarAddress(detection.exemplar) },
        exemplarShot(exemplar, { withAnnotation: true, extra: "exemplar-shot" }))],
    factList([
      ["score", scored(detection.score)],
      ["image", scene.image_id],
      ["box", detection.box.map((side) => Math.round(side)).join(", ")],
      exemplar && exemplar.threshold !== null && ["its threshold", short(exemplar.threshold)],
      detection.is_own_image && ["careful", "the exemplar is an object of an image of the same name"],
    ]),
    exemplar && exemplar.labels.length > 0 && [h("h3", {}, "Carried over"), factList(exemplar.labels)],
  ];
  return { title: `${className(detection.class_id)}, ${scored(detection.score)}`, body: sceneBody(draw, side, switches) };
}

function missedDialog(missed) {
  const scene = data.scenes[missed.scene];
  const object = scene.objects[missed.object];
  const draw = () => sceneShot(scene, [0, 0, scene.width, scene.height], [
    layers.others ? otherNodes(missed.scene, null) : [],
    layers.objects ? objectNodes(scene) : boxNode(object.box, "object"),
  ], `${object.class_name} in ${scene.image_id} that was not found`, true);
  const side = factList([
    ["class", object.class_name],
    ["image", scene.image_id],
    ["nearest detection of its class", missed.best_iou > 0 ? `IoU ${missed.best_iou.toFixed(2)}` : "none overlaps it"],
    ["box", object.box.map((side) => Math.round(side)).join(", ")],
  ]);
  const switches = [["objects", "all annotated objects"], ["others", "detections"]];
  return { title: `Missed: ${object.class_name}`, body: sceneBody(draw, side, switches) };
}

// Start

history.scrollRestoration = "manual";
addEventListener("hashchange", render);
addEventListener("click", (event) => {
  const link = event.target.closest?.("a");
  const href = link?.getAttribute("href");
  if (!href?.startsWith("#/") || event.ctrlKey || event.metaKey || event.shiftKey) return;
  remember();
  isOpenedHere = readAddress(href).params.has("open");
}, true);
dialog.addEventListener("close", () => {
  if (!readAddress().params.has("open")) return; // closed because the address has changed
  if (isOpenedHere) history.back();
  else {
    history.replaceState(history.state, "", changedAddress({ open: null }));
    render();
  }
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // beside it, on the backdrop
});
dialog.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by && event.target.type !== "checkbox") dialog.querySelector(`[data-step="${by}"]`)?.click();
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
render();
