// Charts as SVG, drawn for the width they have and again when that changes.

const LINEAR = { to: (value) => value };
const LOG = { to: (value) => Math.log10(value) };
const LOG_FROM_ZERO = { to: (value) => Math.log10(1 + value), ticks: [0, 1, 10, 100, 1e3, 1e4, 1e5, 1e6] };
const LOG_SHARE = { to: (value) => Math.log10(1 + 1000 * value), ticks: [0, 0.001, 0.01, 0.1, 0.5] };

const drawings = new Map();
const chartObserver = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const width = Math.round(entry.contentRect.width);
    const drawing = drawings.get(entry.target);
    if (!entry.target.isConnected) drawings.delete(entry.target);
    else if (drawing && width > 0 && width !== drawing.width) {
      drawing.width = width;
      entry.target.replaceChildren(drawing.draw(width));
    }
  }
});

// `draw(width)` gives the picture.
function responsive(draw) {
  const place = h("div", { class: "chart" });
  drawings.set(place, { draw, width: 0 });
  chartObserver.observe(place);
  return place;
}

function redraw(place) {
  const drawing = drawings.get(place);
  if (drawing?.width) place.replaceChildren(drawing.draw(drawing.width));
}

function niceTicks(low, high, most) {
  const power = 10 ** Math.floor(Math.log10((high - low) / most || 1));
  const step = power * ([1, 2, 5, 10].find((each) => (high - low) / (power * each) <= most) ?? 10);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) {
    ticks.push(Number((k * step).toPrecision(12)));
  }
  return ticks;
}

function ticksOf(axis, most) {
  if (axis.scale?.ticks) return axis.scale.ticks.filter((value) => value <= axis.max);
  if (axis.scale !== LOG) return niceTicks(axis.min, axis.max, most);
  const ticks = [];
  for (let power = Math.ceil(Math.log10(axis.min) - 1e-9); 10 ** power <= axis.max * 1.0001; power += 1) {
    ticks.push(10 ** power);
  }
  return ticks.length > 1 ? ticks : [axis.min, axis.max];
}

// Lines over two axes: {min, max, title, format, scale}. A line: {points, style, step}; a mark: {point, style}.
function lineChart({ label, x, y, lines, marks = [], height = 300, area = null }) {
  return (width) => {
    const left = 54;
    const [top, right, bottom] = [10, 14, 42];
    const [innerWidth, innerHeight, floor] = [width - left - right, height - top - bottom, height - bottom];
    const place = (axis, value, length) => {
      const { to } = axis.scale ?? LINEAR;
      return (length * (to(value) - to(axis.min))) / (to(axis.max) - to(axis.min) || 1);
    };
    const across = (value) => left + place(x, value, innerWidth);
    const up = (value) => floor - place(y, value, innerHeight);
    const path = (points, step) =>
      points
        .map(([px, py], k) => {
          const before = step && k ? `L${across(px).toFixed(1)} ${up(points[k - 1][1]).toFixed(1)}` : "";
          return `${before}${k ? "L" : "M"}${across(px).toFixed(1)} ${up(py).toFixed(1)}`;
        })
        .join("");
    const nodes = [];
    for (const value of ticksOf(y, 5)) {
      nodes.push(s("line", { class: "grid", x1: left, x2: width - right, y1: up(value), y2: up(value) }));
      nodes.push(s("text", { x: left - 7, y: up(value) + 4, "text-anchor": "end" }, y.format(value)));
    }
    for (const value of ticksOf(x, Math.max(2, Math.floor(innerWidth / 70)))) {
      nodes.push(s("line", { class: "axis", x1: across(value), x2: across(value), y1: floor, y2: floor + 4 }));
      nodes.push(s("text", { x: across(value), y: floor + 18, "text-anchor": "middle" }, x.format(value)));
    }
    nodes.push(s("line", { class: "axis", x1: left, x2: width - right, y1: floor, y2: floor }));
    nodes.push(s("text", { x: left + innerWidth / 2, y: height - 5, "text-anchor": "middle" }, x.title));
    if (area) {
      const back = path(stepped(area.lower.slice().reverse(), area.step), false);
      nodes.push(s("path", { class: "between", d: `${path(area.upper, area.step)}L${back.slice(1)}Z` }));
    }
    for (const { points, style, step } of lines) {
      if (points.length) nodes.push(s("path", { class: `line ${style}`, d: path(points, step) }));
    }
    for (const { point, style } of marks) {
      nodes.push(s("circle", { class: `mark ${style}`, cx: across(point[0]), cy: up(point[1]), r: 5 }));
    }
    return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, nodes);
  };
}

// The corners of a step line that is walked backwards.
function stepped(points, step) {
  if (!step) return points;
  return points.flatMap((point, k) => (k ? [[points[k - 1][0], point[1]], point] : [point]));
}

function swatch(style) {
  const line = s("line", { class: `line ${style}`, x1: 0, x2: 26, y1: 5, y2: 5 });
  return s("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, line);
}

// Scores of training windows under one exemplar: positives upwards, negatives downwards, the threshold across.
// Heights are square roots, so that a few are seen beside thousands.
function scoreBars(exemplar, width, height, top = 0, middle = 0.62) {
  const { low, high, positives, negatives } = exemplar.scores;
  const base = top + (height - top) * middle;
  const step = width / positives.length;
  const nodes = [];
  for (const [values, room, isUp, style] of [
    [positives, base - top, true, "bar-positive"],
    [negatives, height - base, false, "bar-negative"],
  ]) {
    const most = Math.sqrt(Math.max(1, ...values));
    values.forEach((value, k) => {
      if (!value) return;
      const length = Math.max(1.5, ((room - 2) * Math.sqrt(value)) / most);
      const place = { x: k * step + 0.3, width: Math.max(step - 0.6, 0.6), y: isUp ? base - length : base };
      nodes.push(s("rect", { class: style, height: length, ...place }));
    });
  }
  const across = (value) => (width * (value - low)) / (high - low);
  if (exemplar.threshold !== null) {
    const x = Math.min(Math.max(across(exemplar.threshold), 1), width - 1);
    nodes.push(s("line", { class: "threshold", x1: x, x2: x, y1: top, y2: height }));
  }
  return { nodes, across, base };
}

function scoreText(exemplar) {
  const limit = exemplar.threshold === null ? "no threshold" : `threshold ${short(exemplar.threshold)}`;
  return `scores of training windows from ${short(exemplar.scores.low)} to ${short(exemplar.scores.high)}, ${limit}`;
}

function sparkline(exemplar) {
  if (!exemplar.scores) return null;
  const { nodes } = scoreBars(exemplar, 240, 46);
  const frame = { class: "spark", viewBox: "0 0 240 46", preserveAspectRatio: "none" };
  return s("svg", { ...frame, role: "img", "aria-label": scoreText(exemplar) }, nodes);
}

function scoreChart(exemplar) {
  return responsive((width) => {
    const [left, height] = [10, 190];
    const inner = width - 2 * left;
    const { nodes, across, base } = scoreBars(exemplar, inner, height, 22);
    const ticks = niceTicks(exemplar.scores.low, exemplar.scores.high, Math.max(2, Math.floor(inner / 80)));
    return s(
      "svg",
      { viewBox: `0 0 ${width} ${height + 38}`, role: "img", "aria-label": scoreText(exemplar) },
      s("g", { transform: `translate(${left} 0)` },
        s("line", { class: "axis", x1: 0, x2: inner, y1: base, y2: base }),
        nodes,
        exemplar.threshold !== null && thresholdText(exemplar.threshold, across, inner),
        ticks.map((value) => s("text", { x: across(value), y: height + 16, "text-anchor": "middle" }, short(value))),
        s("text", { x: inner / 2, y: height + 34, "text-anchor": "middle" }, "score under this exemplar")),
    );
  });
}

// Beside the line, on the side where there is room.
function thresholdText(threshold, across, width) {
  const isRight = across(threshold) > width / 2;
  const place = { x: across(threshold) + (isRight ? -6 : 6), y: 13, "text-anchor": isRight ? "end" : "start" };
  return s("text", { class: "strong", ...place }, `threshold ${short(threshold)}`);
}
