// The page of `eesvm serve`: sends an image, and lets two sliders choose what is shown of the answer.
// Nothing is asked again when a slider moves: every detection says at which recall floors it stands.

import { $, choose, clearStage, colourOf, counted, draw, drawMasks, drawParts, element, percent, scoreText, view }
  from "./serve_show.js";

const OFF = -1; // no recall floor
const GONE = "The server does not answer: is `eesvm serve` still running?";

let sending = null; // the request under way
let lastFile = null; // to be sent again when floors become known
let scoreWasMoved = false;
let floorWanted = null; // what the floor slider was moved to; null: the highest floor
const hiddenClasses = new Set();

const say = (text) => { $("status").textContent = text; };
const complain = (text) => { $("error").textContent = text; };

// ---- the model

async function readModel() {
  try {
    const response = await fetch("/api/model");
    if (!response.ok) throw new Error();
    view.model = await response.json();
  } catch {
    complain(GONE);
    return;
  }
  const { classes, calibrator, floors, n_exemplars: n, n_mirrored: nMirrored } = view.model;
  const names = classes.map((one) => one.name);
  const listed = names.length > 6 ? `${names.slice(0, 6).join(", ")} and ${names.length - 6} more` : names.join(", ");
  document.title = `eesvm: ${listed}`;
  $("title").textContent = `Detector of ${listed}`;
  const mirrored = nMirrored ? ` (${counted(n - nMirrored)} object${n - nMirrored === 1 ? "" : "s"}, each with its mirror image)` : "";
  $("summary").textContent = `${counted(n)} exemplar${n === 1 ? "" : "s"}${mirrored}, calibrator ${calibrator}. ` +
    "Every detection names the training object that it looks like.";
  if (!$("learnt-list").children.length) showLearnt();
  const wasMadeBefore = view.answer && !view.answer.floors.length && floors.rows.length > 0;
  if (wasMadeBefore && lastFile && !sending) send(lastFile);
  else showFloor();
  if (floors.state === "preparing") setTimeout(readModel, 1000);
}

function showLearnt() {
  const owners = view.model.classes.flatMap((one) => Array(one.n_exemplars).fill(one.name));
  const n = Math.min(12, owners.length);
  const numbers = Array.from({ length: n }, (_, k) => Math.floor(((k + 0.5) * owners.length) / n));
  $("learnt-list").replaceChildren(...numbers.map((number) => {
    const item = element("li"), image = element("img");
    image.src = `/api/exemplars/${number}.jpg`;
    image.alt = "";
    item.append(image, owners[number]);
    return item;
  }));
  $("learnt").hidden = lastFile !== null;
}

// ---- an image

function take(files) {
  complain("");
  const file = files && files[0];
  const problem = !file ? "There is no image file in what was dropped or pasted."
    : !view.model ? "The server has not answered yet: try again in a moment." : problemOf(file);
  if (problem) { complain(problem); return; }
  scoreWasMoved = false;
  hiddenClasses.clear();
  send(file);
}

function problemOf(file) {
  const most = view.model.max_upload;
  if (file.type && (!file.type.startsWith("image/") || file.type === "image/svg+xml")) {
    return `${file.name || "This"} is not a photograph or another image made of pixels.`;
  }
  if (file.size > most) {
    return `${file.name || "The image"} is too large: ${Number((most / 1e6).toPrecision(4))} MB are taken here.`;
  }
  return "";
}

async function send(file) {
  if (sending) sending.abort();
  const request = (sending = new AbortController());
  const isAgain = file === lastFile && view.answer !== null;
  const name = file.name || "the image";
  lastFile = file;
  if (!isAgain) showAtOnce(file);
  say(isAgain ? `Recall floors are ready: looking at ${name} again …` : `Looking at ${name} …`);
  $("progress").hidden = false;
  const began = Date.now();
  const tick = () => say(`Looking at ${name} … ${Math.round((Date.now() - began) / 1000)} s`);
  const clock = isAgain ? null : setInterval(tick, 1000);
  let failure = "";
  try {
    const headers = { "Content-Type": file.type || "image/unknown" };
    const options = { method: "POST", headers, body: file, signal: request.signal };
    const response = await fetch("/api/detect?preview=1", options);
    const content = await response.json();
    if (response.ok) await received(content, request);
    else failure = content.error || "The server cannot use this image.";
  } catch {
    failure = GONE;
  } finally {
    clearInterval(clock);
  }
  if (sending !== request) return; // another image came after this one
  sending = null;
  $("progress").hidden = true;
  if (failure) failed(name, failure);
}

function showAtOnce(file) {
  clearStage();
  $("drop").classList.add("small");
  $("learnt").hidden = $("result").hidden = true;
  const picture = $("picture");
  picture.alt = `the image ${file.name || ""}`.trim();
  if (picture.src.startsWith("blob:")) URL.revokeObjectURL(picture.src);
  picture.src = URL.createObjectURL(file);
  picture.decode().then(() => {
    if (lastFile !== file || view.answer !== null || sending === null) return;
    $("canvas").style.setProperty("--ratio", String(picture.naturalWidth / picture.naturalHeight));
    $("caption").textContent = "";
    $("side").hidden = true;
    $("result").hidden = false;
  }).catch(() => {}); // a kind of image that browsers cannot show: the server sends what it has understood
}

function failed(name, sentence) {
  say("");
  complain(`${name}: ${sentence}`);
  view.answer = null;
  $("result").hidden = true;
}

async function received(answer, request) {
  const picture = $("picture"), before = picture.src;
  picture.src = answer.preview; // the image as the server understood it: upright, first frame, over white
  await picture.decode().catch(() => {});
  if (before.startsWith("blob:")) URL.revokeObjectURL(before);
  if (sending !== request) return;
  answer.detections.forEach((one, number) => { one.number = number; });
  Object.assign(view, { answer, active: null, chosen: null });
  const seconds = Object.values(answer.seconds).reduce((sum, one) => sum + one, 0);
  say(`Looked at ${counted(answer.n_windows)} windows in ${seconds.toFixed(1)} s.`);
  $("result").hidden = $("side").hidden = false;
  $("canvas").style.setProperty("--ratio", String(answer.width / answer.height));
  $("caption").textContent = `${answer.width} x ${answer.height} pixels`;
  prepareScore();
  prepareSwitches();
  showFloor();
  update();
}

// ---- controls

function prepareScore() {
  const slider = $("score"), kept = Number(slider.value);
  const scores = view.answer.detections.map((one) => one.score);
  const { kind, start } = view.model.score;
  const [low, high] = kind === "probability" ? [0, 1] : [Math.min(0, ...scores), Math.max(0, ...scores)];
  slider.min = String(low);
  slider.max = String(high);
  slider.step = kind === "probability" ? "0.01" : String((high - low) / 200 || 1);
  slider.value = String(scoreWasMoved ? kept : (start ?? low));
  $("score-low").textContent = scoreText(low);
  $("score-high").textContent = scoreText(high);
}

function prepareSwitches() {
  const found = view.answer.detections;
  const names = view.model.classes.map((one) => one.name).filter((name) => found.some((one) => one.class === name));
  $("classes").replaceChildren(...(names.length > 1 ? names.map(classSwitch) : []));
  $("show-masks").parentElement.hidden = !found.some((one) => one.mask);
  $("show-parts").parentElement.hidden = !found.some((one) => one.parts.length || one.keypoints.length);
}

function classSwitch(name) {
  const label = element("label"), check = element("input"), dot = element("span", "dot");
  check.type = "checkbox";
  check.checked = !hiddenClasses.has(name);
  dot.style.setProperty("--class", colourOf(name));
  check.addEventListener("change", () => {
    if (check.checked) hiddenClasses.delete(name); else hiddenClasses.add(name);
    update();
  });
  label.append(check, dot, ` ${name}`);
  return label;
}

// Positions of the slider, from left to right: the lowest floor, ..., the highest floor, no floor.
function floorAtSlider() {
  const n = view.answer ? view.answer.floors.length : 0, position = Number($("floor").value);
  return position >= n ? OFF : n - 1 - position;
}

function showFloor() {
  const { state, text, rows } = view.model.floors, known = view.answer ? view.answer.floors : [];
  $("floor-control").hidden = !known.length;
  $("floor-details").hidden = true;
  if (!known.length) {
    const beginnings = { absent: "There is no slider for the recall floor.",
      preparing: "The slider for the recall floor is being prepared." };
    $("floor-text").textContent = state in beginnings ? `${beginnings[state]} ${text}` : "";
    return;
  }
  const slider = $("floor"), n = known.length;
  slider.max = String(n);
  slider.value = String(floorWanted === null ? n - 1 : Math.min(floorWanted, n));
  const floor = floorAtSlider(), value = floor === OFF ? "off" : percent(known[floor]);
  $("floor-low").textContent = percent(known[n - 1]);
  $("floor-value").textContent = value;
  slider.setAttribute("aria-valuetext", value);
  $("floor-text").textContent = floor === OFF
    ? "Off: every window stays, whether an exemplar accepts it or not." : floorText(rows[floor]);
  if (floor !== OFF && rows[floor].classes.length > 1) showFloorRows(rows[floor].classes);
}

const wholeBound = (row) => Math.ceil(row.lower_bound - 1e-6); // losses are whole numbers

function floorText(row) {
  const left = row.n_left_out ? `all but ${counted(row.n_left_out)} of` : "all";
  const proof = row.loss <= wholeBound(row) ? "which is proven to be the fewest possible"
    : `proven: at least ${counted(wholeBound(row))}, whatever the thresholds`;
  return `Windows stay where some exemplar accepts them. In training these thresholds accept ${left} ` +
    `${counted(row.n_positives)} positives and ${counted(row.loss)} of ${counted(row.n_negatives)} negatives (${proof}).`;
}

function showFloorRows(classes) {
  $("floor-details").hidden = false;
  $("floor-rows").replaceChildren(...classes.map((one) => {
    const row = element("tr"), head = element("th", "", one.class);
    head.scope = "row";
    const left = `${counted(one.n_left_out)} of ${counted(one.n_positives)}`;
    row.append(head, ...[left, counted(one.loss), counted(wholeBound(one))].map((text) => element("td", "", text)));
    return row;
  }));
}

function update() {
  if (!view.answer) return;
  const floor = floorAtSlider(), least = Number($("score").value);
  $("score-value").textContent = scoreText(least);
  $("score").setAttribute("aria-valuetext", scoreText(least));
  const isStanding = (one) => (floor === OFF ? one.without_floor : one.at_floors.includes(floor));
  const standing = view.answer.detections.filter(isStanding);
  const visible = standing.filter((one) => !hiddenClasses.has(one.class));
  view.shown = visible.filter((one) => one.score >= least - 1e-9);
  if (!view.shown.includes(view.chosen)) view.chosen = null;
  view.active = view.chosen;
  const nHidden = standing.length - view.shown.length, by = hiddenClasses.size ? "the score or the class" : "the score";
  $("count").textContent = `${view.shown.length} shown${nHidden ? `, ${nHidden} hidden by ${by}` : ""}`;
  $("nothing").hidden = view.shown.length > 0;
  $("nothing").textContent = !view.answer.detections.length ? "Nothing was found in this image."
    : !standing.length ? "No exemplar accepts a window at this recall floor: a higher one lets more pass."
    : !visible.length ? "All classes that were found are switched off."
    : `No detection scores ${scoreText(least)} or more; the best scores ${scoreText(visible[0].score)}.`;
  draw();
}

// ---- events

$("file").addEventListener("change", () => {
  if ($("file").files.length) take($("file").files);
  $("file").value = ""; // so that the same file can be chosen again
});
$("score").addEventListener("input", () => { scoreWasMoved = true; update(); });
$("floor").addEventListener("input", () => { floorWanted = Number($("floor").value); showFloor(); update(); });
$("show-masks").addEventListener("change", drawMasks);
$("show-parts").addEventListener("change", drawParts);

// A drop that misses the frame must not make the browser leave the page.
for (const name of ["dragenter", "dragover"]) {
  document.addEventListener(name, (event) => { event.preventDefault(); $("drop").classList.add("over"); });
}
document.addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) $("drop").classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  take(event.dataTransfer.files);
});
document.addEventListener("paste", (event) => {
  if (event.clipboardData && event.clipboardData.files.length) take(event.clipboardData.files);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && view.answer) { choose(null); return; }
  const card = event.target instanceof Element ? event.target.closest(".card") : null;
  if (!card || (event.key !== "ArrowDown" && event.key !== "ArrowUp")) return;
  const cards = [...$("list").querySelectorAll(".card")];
  const next = cards[cards.indexOf(card) + (event.key === "ArrowDown" ? 1 : -1)];
  if (next) { event.preventDefault(); next.focus(); }
});

readModel();
