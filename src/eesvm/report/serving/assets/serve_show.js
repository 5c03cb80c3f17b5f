// What the page of `eesvm serve` draws: boxes, masks and parts over the image, and the list of detections beside it.
// Texts of a model are put in as text, never as markup.

// What is looked at. `shown` are the detections that the controls leave, the best first; `active` is the one under the
// pointer or the focus; `chosen` the one whose details are open, and that is active when nothing else is.
export const view = { model: null, answer: null, shown: [], active: null, chosen: null };

const COLOURS = ["#ffb000", "#56b4e9", "#40d090", "#ff8fc7", "#fff25c", "#ff7d4d", "#b9a5ff", "#e6e6e6"];
const CROP = 128; // pixels of the small picture of a detection
const ROOM = 44; // pixels that a part must be wide to carry its name

export const $ = (id) => document.getElementById(id);
export const counted = (n) => Math.round(n).toLocaleString("en");
export const percent = (share) => `${Number((100 * share).toFixed(2))} %`;

export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

export function scoreText(score) {
  return view.model.score.kind === "probability" ? score.toFixed(2) : String(Number(score.toPrecision(3)));
}

export function colourOf(name) {
  const place = view.model.classes.findIndex((one) => one.name === name);
  return COLOURS[Math.max(0, place) % COLOURS.length];
}

export function draw() {
  drawBoxes();
  drawList();
  drawActive();
}

export function clearStage() {
  Object.assign(view, { answer: null, shown: [], active: null, chosen: null });
  for (const id of ["boxes", "parts", "list"]) $(id).replaceChildren();
  $("masks").width = $("masks").height = 1;
}

// Opens what is known of a detection; null closes it.
export function choose(one, isFromImage = false) {
  view.chosen = view.active = one;
  const number = one === null ? "" : String(one.number);
  for (const card of $("list").querySelectorAll(".card")) {
    const isChosen = card.dataset.number === number;
    card.setAttribute("aria-expanded", String(isChosen));
    if (isChosen && isFromImage) card.scrollIntoView({ block: "nearest" });
  }
  for (const list of $("list").querySelectorAll(".known")) list.hidden = list.dataset.number !== number;
  drawActive();
}

// ---- over the image

function place(node, [x1, y1, x2, y2]) {
  const { width, height } = view.answer;
  node.style.left = `${(100 * x1) / width}%`;
  node.style.top = `${(100 * y1) / height}%`;
  node.style.width = `${(100 * (x2 - x1)) / width}%`;
  node.style.height = `${(100 * (y2 - y1)) / height}%`;
}

function drawBoxes() {
  const area = ({ box: [x1, y1, x2, y2] }) => (x2 - x1) * (y2 - y1);
  const largestFirst = [...view.shown].sort((a, b) => area(b) - area(a)); // a box within another can be reached
  $("boxes").replaceChildren(...largestFirst.map((one) => {
    const node = element("div", "box");
    node.dataset.number = String(one.number);
    node.style.setProperty("--class", colourOf(one.class));
    node.classList.toggle("top", one.box[1] < 0.06 * view.answer.height);
    node.classList.toggle("right", one.box[0] > 0.8 * view.answer.width);
    place(node, one.box);
    node.append(element("span", "tag", `${one.class} ${scoreText(one.score)}`));
    node.addEventListener("pointerenter", () => look(one));
    node.addEventListener("pointerleave", () => look(view.chosen));
    node.addEventListener("click", () => choose(one, true));
    return node;
  }));
  $("boxes").classList.toggle("few", view.shown.length <= 8);
}

function look(one) {
  if (view.active === one) return;
  view.active = one;
  drawActive();
}

function drawActive() {
  const number = view.active === null ? "" : String(view.active.number);
  for (const node of document.querySelectorAll(".box, .card")) {
    node.classList.toggle("active", node.dataset.number === number);
  }
  $("boxes").classList.toggle("has-active", view.active !== null);
  drawMasks();
  drawParts();
}

export function drawMasks() {
  if (!view.answer) return;
  const canvas = $("masks"), [width, height] = view.answer.frame, { shown, active } = view;
  canvas.width = width; // which also clears it
  canvas.height = height;
  if (!$("show-masks").checked) return;
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  const worstFirst = [...shown].reverse().filter((one) => one !== active);
  for (const one of worstFirst) paint(image, one, active === null ? 80 : 25, active === null ? 230 : 60);
  if (active !== null) paint(image, active, 105, 255);
  context.putImageData(image, 0, 0);
}

function paint(image, one, inside, edge) {
  if (!one.mask) return;
  const { x, y, size: [w, h] } = one.mask, pixels = maskPixels(one.mask);
  const colour = Number.parseInt(colourOf(one.class).slice(1), 16);
  for (let row = 0; row < h; row++) {
    for (let column = 0; column < w; column++) {
      const at = row * w + column;
      if (!pixels[at]) continue;
      const isEdge = row === 0 || column === 0 || row === h - 1 || column === w - 1 ||
        !pixels[at - 1] || !pixels[at + 1] || !pixels[at - w] || !pixels[at + w];
      const target = 4 * ((y + row) * image.width + x + column);
      image.data[target] = colour >> 16;
      image.data[target + 1] = (colour >> 8) & 255;
      image.data[target + 2] = colour & 255;
      image.data[target + 3] = isEdge ? edge : inside;
    }
  }
}

// Run lengths go down the columns and begin outside.
function maskPixels(mask) {
  if (mask.pixels) return mask.pixels;
  const [w, h] = mask.size, pixels = new Uint8Array(w * h);
  let at = 0;
  mask.counts.forEach((run, k) => {
    if (k % 2) for (let i = at; i < at + run; i++) pixels[(i % h) * w + Math.floor(i / h)] = 1;
    at += run;
  });
  mask.pixels = pixels;
  return pixels;
}

export function drawParts() {
  const { active, answer } = view;
  const nodes = [];
  if (active !== null && $("show-parts").checked) {
    for (const part of active.parts) {
      const node = element("div", "part");
      place(node, part.box);
      const width = ((part.box[2] - part.box[0]) / answer.width) * $("canvas").clientWidth;
      if (width > ROOM) node.append(element("span", "", part.name));
      nodes.push(node);
    }
    for (const { name, point: [x, y] } of active.keypoints) {
      const node = element("div", "point");
      node.style.left = `${(100 * x) / answer.width}%`;
      node.style.top = `${(100 * y) / answer.height}%`;
      node.append(element("span", "", name));
      nodes.push(node);
    }
  }
  $("parts").replaceChildren(...nodes);
}

// ---- the list

function drawList() {
  $("list").replaceChildren(...view.shown.map((one) => {
    const item = element("li"), card = element("button", "card");
    card.type = "button";
    card.dataset.number = String(one.number);
    card.style.setProperty("--class", colourOf(one.class));
    card.setAttribute("aria-expanded", String(one === view.chosen));
    card.append(cropOf(one), exemplarPicture(one), wordsOf(one));
    card.addEventListener("pointerenter", () => look(one));
    card.addEventListener("pointerleave", () => look(view.chosen));
    card.addEventListener("focus", () => look(one));
    card.addEventListener("blur", () => look(view.chosen));
    card.addEventListener("click", () => choose(one === view.chosen ? null : one));
    item.append(card, knownOf(one));
    return item;
  }));
}

function cropOf({ box: [x1, y1, x2, y2] }) {
  const canvas = element("canvas", "pair"), picture = $("picture");
  canvas.width = canvas.height = CROP;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "the detection");
  if (!picture.naturalWidth) return canvas;
  const kx = picture.naturalWidth / view.answer.width, ky = picture.naturalHeight / view.answer.height;
  const scale = CROP / Math.max(x2 - x1, y2 - y1), w = (x2 - x1) * scale, h = (y2 - y1) * scale;
  const source = [x1 * kx, y1 * ky, (x2 - x1) * kx, (y2 - y1) * ky];
  canvas.getContext("2d").drawImage(picture, ...source, (CROP - w) / 2, (CROP - h) / 2, w, h);
  return canvas;
}

function exemplarPicture(one) {
  if (one.exemplar === null) return element("span");
  const image = element("img", "pair"), { shows } = view.answer.exemplars[one.exemplar];
  image.loading = "lazy";
  image.src = `/api/exemplars/${one.exemplar}.jpg`;
  image.alt = shows === "picture" ? "the training object that it looks like"
    : `the ${shows} of the training object; no picture of it is kept`;
  return image;
}

function wordsOf(one) {
  const words = element("span", "words"), name = element("span", "name");
  name.append(element("span", "", one.class), element("span", "number", scoreText(one.score)));
  words.append(name);
  if (view.model.score.kind === "probability") {
    const bar = element("span", "bar"), filled = element("span");
    filled.style.width = `${100 * Math.min(1, Math.max(0, one.score))}%`;
    bar.append(filled);
    words.append(bar);
  }
  if (one.exemplar === null) {
    words.append(element("span", "like", "the single SVM names no training object"));
  } else {
    const labels = labelsOf(view.answer.exemplars[one.exemplar]).slice(0, 4);
    words.append(element("span", "like", `looks like ${nameOf(one)}`));
    words.append(element("span", "labels", labels.map(([key, value]) => `${key} ${value}`).join(", ")));
  }
  return words;
}

function nameOf(one) {
  const { index, image_id: image, is_mirrored: isMirrored } = view.answer.exemplars[one.exemplar];
  return `object ${index + 1} of ${image}${isMirrored ? ", mirrored" : ""}`;
}

const labelsOf = ({ pose, labels }) => [...(pose ? [["pose", pose]] : []), ...labels];

function knownOf(one) {
  const list = element("dl", "known");
  list.hidden = one !== view.chosen;
  list.dataset.number = String(one.number);
  const add = (name, text) => { if (text) list.append(element("dt", "", name), element("dd", "", text)); };
  const whole = (box) => box.map((side) => Math.round(side)).join(", ");
  add("box", whole(one.box));
  if (one.exemplar === null) return list;
  const exemplar = view.answer.exemplars[one.exemplar];
  add("exemplar", `${one.exemplar} of the model, ${nameOf(one)}, box ${whole(exemplar.box)}`);
  for (const [key, value] of labelsOf(exemplar)) add(key, value);
  add("parts", one.parts.map((part) => part.name).join(", "));
  add("keypoints", one.keypoints.map((point) => point.name).join(", "));
  if (!one.mask) add("mask", "none is known of this training object");
  return list;
}
