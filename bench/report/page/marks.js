// Marks of points, the spread of a crowd, and text that must not cover them.

const seriesOf = Object.fromEntries(study.series.map((series) => [series.name, series]));
const precisionOf = Object.fromEntries(study.precisions.map((precision) => [precision.name, precision]));
const kRadius = 4.8;

const textWidth = (() => {
  const pen = document.createElement("canvas").getContext("2d");
  const widths = new Map();
  return (text, size) => {
    let width = widths.get(text);
    if (width === undefined) {
      pen.font = '100px "DejaVu Sans",Verdana,"Bitstream Vera Sans",sans-serif';
      widths.set(text, (width = pen.measureText(text).width / 100));
    }
    return width * size;
  };
})();
const fitText = (text, size, room) => {
  if (textWidth(text, size) <= room) return text;
  let keep = text.length;
  while (keep > 1 && textWidth(text.slice(0, keep) + "…", size) > room) --keep;
  return text.slice(0, keep) + "…";
};

// Which cells of a panel are covered, to place text beside.
const coverOf = (box) => {
  const cell = 4;
  const columns = Math.ceil((box.x1 - box.x0) / cell) + 1, lines = Math.ceil((box.y1 - box.y0) / cell) + 1;
  const covered = new Uint8Array(columns * lines);
  const cellsOf = (spot) => [
    clamp(Math.floor((spot.x0 - box.x0) / cell), 0, columns - 1), clamp(Math.floor((spot.x1 - box.x0) / cell), 0, columns - 1),
    clamp(Math.floor((spot.y0 - box.y0) / cell), 0, lines - 1), clamp(Math.floor((spot.y1 - box.y0) / cell), 0, lines - 1)];
  const isFree = (spot) => {
    const [x0, x1, y0, y1] = cellsOf(spot);
    for (let y = y0; y <= y1; ++y) for (let x = x0; x <= x1; ++x) if (covered[y * columns + x]) return false;
    return true;
  };
  const add = (spot) => {
    const [x0, x1, y0, y1] = cellsOf(spot);
    for (let y = y0; y <= y1; ++y) covered.fill(1, y * columns + x0, y * columns + x1 + 1);
  };
  const take = (spot) => inside(box, spot.x0, spot.y0) && inside(box, spot.x1, spot.y1) && isFree(spot) && (add(spot), true);
  return { isFree, add, take };
};

const longestTime = () => Math.max(...shown.filter((point) => point.group >= 0).map(timeOf));
const radiusOf = (point, longest) => (state.sized ? Math.max(3, 20 * Math.sqrt(timeOf(point) / longest)) : kRadius);

const lookOf = (point) => `${point.cold ? "hollow " : ""}${point.source} c-${point.precision}`;
const markElements = (point, radius) => {
  const size = { transform: `scale(${radius})`, "vector-effect": "non-scaling-stroke" };
  const mark = svg("path", { class: `mark ${lookOf(point)}`, d: seriesOf[point.series].path, ...size });
  const glyph = precisionOf[point.precision]?.path;
  return glyph ? [mark, svg("path", { class: `glyph ${lookOf(point)}`, d: glyph, ...size })] : [mark];
};

const summaryOf = (point) => {
  const rate = point.group >= 0 ? `${flopsText(flopsOf(point))} at ${digits(timeView.x(point, farthestLevel(point)))} FLOP/byte` : "";
  const headroom = point.headroom ?? `${point.percent?.toFixed(0)} % of ${point.roof || "its roof"}`;
  const roof = point.percent ? `, ${headroom}, bound by ${point.bound}` : "";
  const flags = point.flags.map((flag) => `; flagged: ${flag}`).join("");
  return `${point.label}, ${point.series}, ${point.precision}: ${rate}${roof}${flags}`;
};

// Quartiles of T as a vertical bar, of Q as a horizontal one, around the origin; nothing where they are too short.
const barsOf = (point, place, scale) => {
  let d = "";
  if (view() === energyView) return [];
  if (view() === instructionView) {  // inactive threads and predication: down to what threads did
    const y = Math.min(scale.box.y1, scale.y(heightOf(point) * Math.max(point.instructions.active, 1e-9))) - place.y;
    return y > 1.5 ? [svg("path", { class: `bar c-${point.precision}`, d: `M0 0V${y.toFixed(1)}` })] : [];
  }
  const y0 = scale.y(point.flop / point.q3) - place.y, y1 = scale.y(point.flop / point.q1) - place.y;
  if (y0 - y1 > 1.5) d += `M0 ${y0.toFixed(1)}V${y1.toFixed(1)}`;
  const q = point.traffic[levelOf(point)];
  if (q.q1 !== undefined) {
    const x0 = scale.x(point.flop / q.q3) - place.x, x1 = scale.x(point.flop / q.q1) - place.x;
    if (x1 - x0 > 1.5) d += `M${x0.toFixed(1)} 0H${x1.toFixed(1)}`;
  }
  return d ? [svg("path", { class: `bar c-${point.precision}`, d })] : [];
};

// A point's mark without its bars. Marks are kept from one drawing to the next: making them takes most of the time.
const kept = new Map();
const markOfPoint = (point, radius) => {
  const known = kept.get(point.index);
  if (known?.radius === radius) return known.group;
  const group = svg("g", { class: `point${point.flags.length ? " flagged" : ""}`, "data-i": point.index, role: "img",
    "aria-label": summaryOf(point) },
  svg("circle", { class: "target", r: Math.max(10, radius) }), ...markElements(point, radius));
  if (point.flags.length) group.append(svg("circle", { class: "flag", r: radius + 3.5 }));
  kept.set(point.index, { radius, group });
  return group;
};

const drawPoint = (place, panel, longest) => {
  const { point } = place;
  const group = markOfPoint(point, radiusOf(point, longest));
  group.setAttribute("tabindex", -1);
  group.setAttribute("transform", `translate(${place.x.toFixed(2)} ${place.y.toFixed(2)})`);
  group.classList.toggle("pinned", state.pinned === point.index);
  one(".bar", group)?.remove();
  if (!place.spread) group.prepend(...barsOf(point, place, panel.scale));
  return group;
};

// Points in one spot lie on a ring around it after a click, so that each can be reached.
const kSameSpot = 7;
let spread = null;  // {indices, x, y}: of the panel's places
const crowdAt = (place) =>
  place.panel.places.filter((other) => Math.hypot(other.home.x - place.home.x, other.home.y - place.home.y) < kSameSpot);
const spreadPlaces = (panel) => {
  if (!spread) return;
  const crowd = panel.places.filter((place) => spread.has(place.point.index));
  if (crowd.length < 2) return;
  const x = crowd.reduce((sum, place) => sum + place.home.x, 0) / crowd.length;
  const y = crowd.reduce((sum, place) => sum + place.home.y, 0) / crowd.length;
  const { box } = panel.scale;
  crowd.forEach((place, rank) => {  // a spiral: 16 pixels between neighbours
    const turn = Math.sqrt(rank + 1) * 2.9, radius = 10 + 7.5 * Math.sqrt(rank + 1) * 1.6;
    place.x = clamp(x + radius * Math.cos(turn), box.x0 + 6, box.x1 - 6);
    place.y = clamp(y + radius * Math.sin(turn), box.y0 + 6, box.y1 - 6);
    place.spread = true;
  });
};
