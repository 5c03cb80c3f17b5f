// Pieces of images with what was found in them, and exemplars with what they transfer.
// Coordinates are pixels of the image as it was; the browser scales.

let clipNumber = 0;

function boxNode(box, style) {
  const [x1, y1, x2, y2] = box;
  const place = { x: x1, y: y1, width: Math.max(x2 - x1, 0.5), height: Math.max(y2 - y1, 0.5) };
  return [s("rect", { class: "casing", ...place }), s("rect", { class: `box ${style}`, ...place })];
}

// What an exemplar transfers to a box: outline of the mask, parts, keypoints. The mask may be one that follows the image,
// or null where there is none.
function handedNodes(exemplar, box, radius, mask = exemplar) {
  const [x1, y1, x2, y2] = box;
  const width = x2 - x1;
  const height = y2 - y1;
  const nodes = [];
  if (mask?.outline) {
    const shape = { d: mask.outline, transform: outlineTransform(mask, mask.place ?? box) };
    nodes.push(s("path", { class: "mask casing", ...shape }), s("path", { class: "mask", ...shape }));
  }
  for (const [name, [left, top, right, bottom]] of exemplar.parts) {
    const place = { x: x1 + left * width, y: y1 + top * height, width: (right - left) * width, height: (bottom - top) * height };
    nodes.push(s("rect", { class: "part", ...place }, s("title", {}, name)));
  }
  for (const [name, x, y] of exemplar.keypoints) {
    nodes.push(s("circle", { class: "point", cx: x1 + x * width, cy: y1 + y * height, r: radius }, s("title", {}, name)));
  }
  return nodes;
}

// The mask that a detection inherits; that of the exemplar as it is where the image could not be read.
function inheritedMask(detection, exemplar) {
  return detection.mask ?? (data.scenes[detection.scene].image === null ? exemplar : null);
}

function outlineTransform(outlined, [x1, y1, x2, y2]) {
  const [width, height] = outlined.outline_size;
  return `translate(${x1} ${y1}) scale(${(x2 - x1) / width} ${(y2 - y1) / height})`;
}

// The exemplar's own picture laid over a box, cut to its mask where it has one.
function laidOver(exemplar, box) {
  if (exemplar.image === null) return [];
  const [x1, y1, x2, y2] = box;
  const id = `clip-${(clipNumber += 1)}`;
  const shape = exemplar.outline
    ? s("path", { d: exemplar.outline, transform: outlineTransform(exemplar, box), "clip-rule": "evenodd" })
    : s("rect", { x: x1, y: y1, width: x2 - x1, height: y2 - y1 });
  const picture = s("image", {
    href: imageUrl(exemplar.image), x: x1, y: y1, width: x2 - x1, height: y2 - y1,
    preserveAspectRatio: "none", opacity: 0.85, "clip-path": `url(#${id})`,
  });
  return [s("clipPath", { id }, shape), picture];
}

// A square piece of a scene around a box, with something around the box where there is something.
function around(scene, [x1, y1, x2, y2]) {
  const longest = Math.max(x2 - x1, y2 - y1, 8);
  const side = Math.max(longest, Math.min(1.5 * longest, Math.max(scene.width, scene.height)));
  const slide = (low, high, length) => {
    if (side >= length) return (length - side) / 2; // the whole length, in the middle
    return Math.min(Math.max((low + high - side) / 2, 0), length - side);
  };
  return [slide(x1, x2, scene.width), slide(y1, y2, scene.height), side, side];
}

function sceneShot(scene, view, nodes, label, free = false) {
  const { width, height } = scene;
  const content =
    scene.image === null
      ? s("text", { x: view[0] + view[2] / 2, y: view[1] + view[3] / 2, "font-size": view[2] / 14 }, "no picture")
      : s("image", { href: imageUrl(scene.image), width, height, preserveAspectRatio: "none" });
  return s(
    "svg",
    { class: free ? "shot free" : "shot", viewBox: view.join(" "), role: "img", "aria-label": label },
    content,
    nodes,
  );
}

function detectionLabel(detection) {
  const by = detection.exemplar === null ? "" : `, won by ${numberedName(detection.exemplar)}`;
  const judged = data.has_truth ? `, ${KINDS[detection.kind].word}` : "";
  const scene = data.scenes[detection.scene];
  return `${className(detection.class_id)} in ${scene.image_id}, score ${scored(detection.score)}${judged}${by}`;
}

function detectionShot(detection) {
  const scene = data.scenes[detection.scene];
  const exemplar = detection.exemplar === null ? null : data.exemplars[detection.exemplar];
  const view = around(scene, detection.box);
  const nodes = [
    exemplar ? handedNodes(exemplar, detection.box, view[2] / 70, inheritedMask(detection, exemplar)) : [],
    boxNode(detection.box, KINDS[detection.kind].tone),
  ];
  return sceneShot(scene, view, nodes, detectionLabel(detection));
}

function missedShot(missed) {
  const scene = data.scenes[missed.scene];
  const object = scene.objects[missed.object];
  const label = `${object.class_name} in ${scene.image_id} that was not found`;
  return sceneShot(scene, around(scene, object.box), boxNode(object.box, "object"), label);
}

// An exemplar as it is in its own image; with its mask and parts if wanted.
function exemplarShot(exemplar, { withAnnotation = false, extra = "" } = {}) {
  const { width, height } = exemplar;
  const label = `exemplar ${exemplarName(exemplar)}, ${className(exemplar.class_id)}`;
  const side = Math.max(width, height);
  const view = [(width - side) / 2, (height - side) / 2, side, side];
  const content =
    exemplar.image === null
      ? s("text", { x: width / 2, y: height / 2, "font-size": side / 9 }, "no picture")
      : s("image", { href: imageUrl(exemplar.image), width, height, preserveAspectRatio: "none" });
  const nodes = withAnnotation ? handedNodes(exemplar, [0, 0, width, height], side / 60) : [];
  return s("svg", { class: `shot ${extra}`, viewBox: view.join(" "), role: "img", "aria-label": label }, content, nodes);
}
