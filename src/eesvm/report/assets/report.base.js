// What every part of the page needs: the data, elements, texts, images, and the state in the address.
// No text of the data ever becomes markup: elements are made one by one, and texts are text nodes.

const data = JSON.parse(document.getElementById("data").textContent);
document.getElementById("data").remove(); // megabytes that are now held as data

const KINDS = {
  right: { word: "right", mark: "✓", tone: "right" },
  localisation: { word: "localisation", mark: "✗", tone: "wrong" },
  confusion: { word: "confusion", mark: "✗", tone: "wrong" },
  duplicate: { word: "duplicate", mark: "✗", tone: "wrong" },
  background: { word: "background", mark: "✗", tone: "wrong" },
  ignored: { word: "not counted", mark: "–", tone: "other" },
  unjudged: { word: "not judged", mark: "", tone: "other" },
};
const WRONG = ["localisation", "confusion", "duplicate", "background"];

// Elements

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

const s = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// Texts

const count = (n) => n.toLocaleString("en-US");

const counted = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

const percent = (share, digits = 1) => (share === null ? "–" : `${(100 * share).toFixed(digits)} %`);

const amount = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 2 });

// Scores may be probabilities or margins of any size: three digits that count.
function short(value) {
  if (value === null) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(2);
  return String(Number(value.toPrecision(3)));
}

// The score of a detection; probabilities get three places, so that 1.000 is not taken for certainty.
const scored = (value) => (Math.abs(value) < 10 && (value === 0 || Math.abs(value) >= 1e-3) ? value.toFixed(3) : short(value));

const exemplarName = (exemplar) => `${exemplar.image_id}, object ${exemplar.index + 1}${exemplar.is_mirrored ? ", mirrored" : ""}`;
// With the number that files of detections have for it, and `eesvm drop` takes.
const numberedName = (number) => `#${number} ${exemplarName(data.exemplars[number])}`;

const className = (id) => data.classes[id].name;

// Images: each is decoded from the page once, when it is first needed, and shared by all that show a piece of it.

const imageUrls = [];

function imageUrl(number) {
  if (number === null) return null;
  imageUrls[number] ??= blobUrl(data.images[number].mime, data.images[number].content);
  return imageUrls[number];
}

function blobUrl(mime, base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return URL.createObjectURL(new Blob([bytes], { type: mime }));
}

// The state of the page is its address: #/view/number?filter=value&open=what

function readAddress(hash = location.hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [view, number] = path.split("/");
  return { view: view || "summary", number: number === undefined ? null : Number(number), params: new URLSearchParams(query) };
}

function address(view, params = {}, number = null) {
  const query = new URLSearchParams();
  for (const [name, value] of params instanceof URLSearchParams ? params : Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `#/${view === "summary" ? "" : view}${number === null ? "" : `/${number}`}${text ? `?${text}` : ""}`;
}

// The address of the view that is shown, with some parameters changed; null takes one out.
function changedAddress(changes) {
  const { view, number, params } = readAddress();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") params.delete(name);
    else params.set(name, value);
  }
  return address(view, params, number);
}

const exemplarAddress = (number) => address("exemplar", {}, number);

const withClass = (id, params = {}) => ({ class: className(id), ...params });

function chosenClass(params) {
  const name = params.get("class");
  const id = name === null ? -1 : data.classes.findIndex((each) => each.name === name);
  return id < 0 ? null : id;
}

function chosenExemplar(params) {
  const number = params.has("exemplar") ? Number(params.get("exemplar")) : NaN;
  return Number.isInteger(number) && data.exemplars[number] ? number : null;
}
