// The page of `eesvm serve --review`: goes through images, takes what somebody says about each detection, and saves it.
// An object is {class, bbox: [x, y, width, height], state, score, exemplar, mask: whether it keeps one}.

import { $, element } from "./serve_show.js";

const GONE = "The server does not answer: is `eesvm serve` still running?";
const COLOURS = ["#ffb000", "#56b4e9", "#40d090", "#ff8fc7", "#fff25c", "#ff7d4d", "#b9a5ff", "#e6e6e6"];
const KEPT = ["accepted", "corrected", "drawn"];
const SAME = 0.5; // overlap from which on a detection is one that something was said about before
const SMALLEST = 4; // pixels on the screen that a new box must have

const review = { images: [], least: {}, classes: [], at: 0, answer: null, objects: [], active: null, version: 0 };
let asked = 0; // numbers requests, so that a late answer to an earlier one is passed over
let isChanged = false;

const say = (text) => { $("status").textContent = text; };
const complain = (text) => { $("error").textContent = text; };
const colourOf = (name) => COLOURS[Math.max(0, review.classes.indexOf(name)) % COLOURS.length];
const corners = ([x, y, width, height]) => [x, y, x + width, y + height];

async function ask(address, content) {
  const options = content === undefined ? {}
    : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) };
  let response, answer;
  try {
    response = await fetch(address, options);
    answer = await response.json();
  } catch {
    throw new Error(GONE);
  }
  if (!response.ok) throw new Error(answer.error || "The server cannot do this.");
  return answer;
}

function overlap(one, other) {
  const [a, b] = [corners(one), corners(other)];
  const width = Math.min(a[2], b[2]) - Math.max(a[0], b[0]), height = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  if (width <= 0 || height <= 0) return 0;
  return (width * height) / (one[2] * one[3] + other[2] * other[3] - width * height);
}

// ---- images

async function begin() {
  try {
    const [model, overview] = await Promise.all([ask("/api/model"), ask("/api/review")]);
    review.classes = model.classes.map((one) => one.name);
    Object.assign(review, { images: overview.images, least: overview.least });
    $("summary").textContent = `${overview.images.length} images; answers are kept in ${overview.folder}.`;
  } catch (error) {
    complain(error.message);
    return;
  }
  $("class").value = review.classes[0];
  $("classes").replaceChildren(...review.classes.map((name) => Object.assign(element("option"), { value: name })));
  const scores = Object.values(review.least);
  if (scores.length) $("score").value = String(Math.min(...scores));
  listImages();
  const first = review.images.findIndex((one) => one.version === 0);
  open(Math.max(0, first));
}

function listImages() {
  $("images").replaceChildren(...review.images.map((one, number) => {
    const option = element("option", "", `${one.version ? "✓ " : ""}${one.name}`);
    option.value = String(number);
    return option;
  }));
  $("images").value = String(review.at);
  const n = review.images.filter((one) => one.version > 0).length;
  $("title").textContent = `Review: ${n} of ${review.images.length} images`;
}

async function open(number) {
  if (number < 0 || number >= review.images.length) return;
  if (isChanged && !window.confirm("Leave this image without saving what was said about it?")) {
    $("images").value = String(review.at);
    return;
  }
  const request = ++asked;
  isChanged = false;
  review.at = number;
  $("images").value = String(number);
  $("result").hidden = true;
  complain("");
  say(`Looking at ${review.images[number].name} …`);
  try {
    const answer = await ask(`/api/review/${number}`, {});
    if (request !== asked) return;
    show(answer);
    say(`Image ${number + 1} of ${review.images.length}: ${review.images[number].name}`);
  } catch (error) {
    if (request !== asked) return;
    say("");
    complain(`${review.images[number].name}: ${error.message}`);
  }
}

function show(answer) {
  const { version, objects, rejected } = answer.review;
  const saved = [...objects.map((one) => ({ ...one, state: one.review })),
    ...rejected.map((one) => ({ ...one, state: "rejected" }))]
    .map((one) => ({ ...one, mask: one.has_mask, shape: null }));
  const found = answer.detections.map(({ box: [x1, y1, x2, y2], ...one }) => (
    { ...one, bbox: [x1, y1, x2 - x1, y2 - y1], state: "undecided", shape: one.mask, mask: one.mask !== null }));
  const isNew = (one) => !saved.some((other) => other.class === one.class && overlap(one.bbox, other.bbox) >= SAME);
  Object.assign(review, { answer, version, active: null, objects: [...saved, ...found.filter(isNew)] });
  review.images[review.at].version = version;
  $("picture").src = answer.preview;
  $("picture").alt = `the image ${review.images[review.at].name}`;
  $("canvas").style.setProperty("--ratio", String(answer.width / answer.height));
  $("result").hidden = false;
  draw();
}

// ---- what is shown

const shown = () => review.objects.filter((one) => one.state !== "undecided" || one.score >= Number($("score").value));

function draw() {
  const own = shown();
  if (!own.includes(review.active)) review.active = own[0] || null;
  $("score-value").textContent = Number($("score").value).toFixed(2);
  const n = own.filter((one) => KEPT.includes(one.state)).length;
  $("count").textContent = `${n} kept, ${own.filter((one) => one.state === "rejected").length} rejected, ` +
    `${own.filter((one) => one.state === "undecided").length} undecided`;
  $("boxes").replaceChildren(...own.map(boxOf));
  $("list").replaceChildren(...own.map(rowOf));
  drawMasks(own);
}

function boxOf(one) {
  const { width, height } = review.answer, [x, y, w, h] = one.bbox;
  const node = element("div", `box ${one.state}${one === review.active ? " active" : ""}`);
  node.style.setProperty("--class", colourOf(one.class));
  Object.assign(node.style, { left: `${(100 * x) / width}%`, top: `${(100 * y) / height}%`,
    width: `${(100 * w) / width}%`, height: `${(100 * h) / height}%` });
  node.append(element("span", "tag", `${one.class}${one.score == null ? "" : ` ${one.score.toFixed(2)}`}`));
  for (const [left, top] of [[0, 0], [1, 0], [0, 1], [1, 1]]) {
    const corner = element("span", "corner");
    Object.assign(corner.style, { left: `${100 * left}%`, top: `${100 * top}%` });
    corner.addEventListener("pointerdown", (event) => drag(event, one, left, top));
    node.append(corner);
  }
  node.addEventListener("pointerdown", (event) => {
    if (one === review.active) return; // a new box may begin inside one that is chosen
    event.stopPropagation();
    review.active = one;
    draw();
  });
  return node;
}

function rowOf(one) {
  const item = element("li", `object ${one.state}${one === review.active ? " active" : ""}`);
  item.style.setProperty("--class", colourOf(one.class));
  const image = element("img");
  image.alt = "";
  if (one.exemplar == null) image.hidden = true;
  else image.src = `/api/exemplars/${one.exemplar}.jpg`;
  const words = element("div"), name = element("div", "name"), said = element("div", "said");
  name.append(element("span", "", one.class), element("span", "", one.score == null ? "" : one.score.toFixed(3)));
  for (const [state, text] of [["accepted", "Accept"], ["rejected", "Reject"], ["undecided", "Undecided"]]) {
    const button = element("button", state, text);
    button.type = "button";
    const isPressed = one.state === state || (state === "accepted" && KEPT.includes(one.state));
    button.setAttribute("aria-pressed", String(isPressed));
    button.addEventListener("click", () => decide(one, state));
    said.append(button);
  }
  if (one.shape || one.has_mask) {
    const button = element("button", "mask", "Mask");
    button.type = "button";
    button.setAttribute("aria-pressed", String(one.mask));
    button.addEventListener("click", () => change(one, { mask: !one.mask }));
    said.append(button);
  }
  words.append(name, said);
  item.append(image, words);
  item.addEventListener("click", () => { if (review.active !== one) { review.active = one; draw(); } });
  return item;
}

function drawMasks(own) {
  const canvas = $("masks"), { frame, width, height } = review.answer;
  [canvas.width, canvas.height] = frame;
  const context = canvas.getContext("2d");
  for (const one of own) {
    if (!one.shape || !one.mask || one.state === "rejected") continue;
    const [w, h] = one.shape.size, piece = new OffscreenCanvas(w, h), pen = piece.getContext("2d");
    const image = pen.createImageData(w, h), colour = parseInt(colourOf(one.class).slice(1), 16);
    let place = 0, isIn = false;
    for (const count of one.shape.counts) { // runs go down the columns
      for (const end = place + count; place < end; place += 1) {
        if (!isIn) continue;
        const at = 4 * ((place % h) * w + Math.floor(place / h));
        image.data.set([colour >> 16, (colour >> 8) & 255, colour & 255, 110], at);
      }
      isIn = !isIn;
    }
    pen.putImageData(image, 0, 0);
    // Where the box was corrected, the mask is stretched with it, as it will be saved.
    const from = one.first || one.bbox, [fx, fy] = [frame[0] / width, frame[1] / height];
    const [sx, sy] = [one.bbox[2] / from[2], one.bbox[3] / from[3]];
    const x = (one.shape.x - from[0] * fx) * sx + one.bbox[0] * fx;
    const y = (one.shape.y - from[1] * fy) * sy + one.bbox[1] * fy;
    context.drawImage(piece, x, y, w * sx, h * sy);
  }
}

// ---- what is said

function change(one, values) {
  Object.assign(one, values);
  isChanged = true;
  review.active = one;
  draw();
}

function decide(one, state) {
  const isMoved = one.first !== undefined;
  const kept = one.state === "drawn" ? "drawn" : isMoved ? "corrected" : "accepted";
  change(one, { state: state === "accepted" ? kept : state });
}

function pointOf(event) {
  const area = $("canvas").getBoundingClientRect(), { width, height } = review.answer;
  const x = ((event.clientX - area.left) / area.width) * width, y = ((event.clientY - area.top) / area.height) * height;
  return [Math.min(width, Math.max(0, x)), Math.min(height, Math.max(0, y))];
}

function follow(event, moved, done) {
  event.preventDefault();
  event.stopPropagation();
  const move = (next) => { moved(pointOf(next)); };
  const end = () => {
    window.removeEventListener("pointermove", move);
    window.removeEventListener("pointerup", end);
    done();
  };
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", end);
}

function drag(event, one, left, top) {
  const [x1, y1, x2, y2] = corners(one.bbox), fixed = [left ? x1 : x2, top ? y1 : y2];
  const first = one.first || one.bbox;
  follow(event, ([x, y]) => {
    const bbox = [Math.min(x, fixed[0]), Math.min(y, fixed[1]), Math.abs(x - fixed[0]), Math.abs(y - fixed[1])];
    if (bbox[2] < 1 || bbox[3] < 1) return;
    change(one, { bbox, first, state: one.state === "drawn" ? "drawn" : "corrected" });
  }, draw);
}

function drawNew(event) {
  if (event.button !== 0) return;
  const start = pointOf(event), name = $("class").value.trim();
  let made = null;
  follow(event, ([x, y]) => {
    const bbox = [Math.min(x, start[0]), Math.min(y, start[1]), Math.abs(x - start[0]), Math.abs(y - start[1])];
    const { width } = review.answer, scale = $("canvas").getBoundingClientRect().width / width;
    if (Math.min(bbox[2], bbox[3]) * scale < SMALLEST || !name) return;
    if (made === null) {
      made = { class: name, score: null, exemplar: null, mask: false, shape: null, state: "drawn", bbox };
      if (!review.classes.includes(name)) review.classes.push(name);
      review.objects.push(made);
    }
    change(made, { bbox });
  }, draw);
}

async function save() {
  const entry = ({ class: name, bbox, state, score, exemplar, mask }) => (
    { class: name, bbox, review: state, score, exemplar, mask });
  const own = shown(), version = review.version, number = review.at;
  const objects = own.filter((one) => one.state !== "rejected").map(entry);
  const rejected = own.filter((one) => one.state === "rejected").map(entry);
  complain("");
  try {
    const answer = await ask(`/api/review/${number}/save`, { version, objects, rejected });
    review.version = review.images[number].version = answer.version;
    isChanged = false;
    listImages();
    say(`Saved ${review.images[number].name}: ${objects.length} kept or undecided, ${rejected.length} rejected.`);
    return true;
  } catch (error) {
    complain(`Not saved: ${error.message}`);
    return false;
  }
}

async function finish() {
  for (const one of shown()) if (one.state === "undecided") one.state = "rejected";
  isChanged = true;
  draw();
  if (await save() && review.at + 1 < review.images.length) open(review.at + 1);
}

function step(by) {
  const own = shown();
  if (!own.length) return;
  review.active = own[Math.min(own.length - 1, Math.max(0, own.indexOf(review.active) + by))];
  draw();
}

$("previous").addEventListener("click", () => open(review.at - 1));
$("next").addEventListener("click", () => open(review.at + 1));
$("images").addEventListener("change", () => open(Number($("images").value)));
$("save").addEventListener("click", save);
$("done").addEventListener("click", finish);
$("score").addEventListener("input", draw);
$("boxes").addEventListener("pointerdown", drawNew);
window.addEventListener("beforeunload", (event) => { if (isChanged) event.preventDefault(); });
window.addEventListener("keydown", (event) => {
  if (/^(INPUT|SELECT|BUTTON)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  const one = review.active, states = { a: "accepted", r: "rejected", u: "undecided" };
  if (event.key === "Enter") finish();
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (one && states[event.key]) decide(one, states[event.key]);
  else if (one && event.key === "m" && (one.shape || one.has_mask)) change(one, { mask: !one.mask });
  else return;
  event.preventDefault();
});

begin();
