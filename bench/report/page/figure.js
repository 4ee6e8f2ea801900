// The figure: panels side by side or one above the other, all in one <svg>, drawn anew at each change.

let figure = null;     // the <svg>
let panels = [];       // of the last drawing
let placeOf = new Map();  // point index -> where its mark stands
const canvas = html("div", { class: "canvas" });

const drawnGroups = () => {
  const used = groups.map((_, index) => index).filter((index) => !state.groupsOff.has(index));
  // A machine without energy or counted instructions has no panel among those of others that have.
  const has = (point) => view() === timeView || canBeDrawn(point);
  const withPoints = used.filter((index) => shown.some((point) => point.group === index && has(point)));
  return withPoints.length ? withPoints : used;
};

// The groups of each panel, its frame and its margin for the names of roofs.
const layOut = (width) => {
  const indices = drawnGroups();
  const lists = state.overlay ? [indices] : indices.map((index) => [index]);
  const columns = lists.length > 1 && width >= 1240 ? 2 : 1;  // with room for the names of roofs
  const frameWidth = width / columns;
  const names = lists.flat().flatMap((group) => visibleRoofs(group).filter((roof) => !roof.bandwidth));
  const widest = Math.max(0, ...names.map((roof) => textWidth(`${shortName(roof)} · ${roof.text}`, kRoofText)));
  const margin = frameWidth >= 620 ? Math.min(widest + 22, frameWidth * 0.37) : 12;
  const left = frameWidth < 480 ? 52 : 62;
  const plotWidth = frameWidth - left - margin;
  const plotHeight = clamp(plotWidth * 0.68, 260, onPaper && lists.length > 1 ? 280 : columns === 1 && width > 860 ? 560 : 430);
  return lists.map((list, rank) => {
    const x0 = (rank % columns) * frameWidth + left, y0 = Math.floor(rank / columns) * (plotHeight + 92) + 30;
    return { groups: list, margin, x: x0 - left, width: frameWidth,
      box: { x0, y0, x1: x0 + plotWidth, y1: y0 + plotHeight }, places: [], roofNames: [] };
  });
};

const drawAxes = (panel) => {
  const { box } = panel.scale, { x, y } = panel.scale.ranges;
  const layer = svg("g", { "aria-hidden": "true" });
  const lines = [], texts = [];
  for (const tick of ticksOf(x, box.x1 - box.x0)) {
    const at = panel.scale.x(tick.at);
    lines.push(lineElement([at, box.y0, at, box.y1], { class: tick.text ? "grid" : "minor" }));
    if (tick.text) texts.push(svg("text", { class: "soft mid", x: at, y: box.y1 + 16, "font-size": 11 }, tick.text));
  }
  for (const tick of ticksOf(y, box.y1 - box.y0)) {
    const at = panel.scale.y(tick.at);
    lines.push(lineElement([box.x0, at, box.x1, at], { class: tick.text ? "grid" : "minor" }));
    if (tick.text) texts.push(svg("text", { class: "soft end", x: box.x0 - 6, y: at + 4, "font-size": 11 }, tick.text));
  }
  lines.sort((a, b) => (a.getAttribute("class") === "grid") - (b.getAttribute("class") === "grid"));
  const middle = (box.y0 + box.y1) / 2;
  layer.append(...lines, ...texts,
    svg("rect", { class: "frame", x: box.x0, y: box.y0, width: box.x1 - box.x0, height: box.y1 - box.y0 }),
    svg("text", { class: "ink mid", x: (box.x0 + box.x1) / 2, y: box.y1 + 35, "font-size": 12 }, view().xTitle(levelName(state.level))),
    svg("text", { class: "ink mid", "font-size": 12, transform: `translate(${panel.x + 12} ${middle}) rotate(-90)` }, view().yTitle));
  return layer;
};

const drawTitle = (panel) => {
  const { box } = panel;
  const kind = groups[panel.groups[0]].kind.toUpperCase();
  const title = panel.groups.length === 1 ? kind : "All";
  const named = panel.groups.map((group) => (panel.groups.length > 1 ? `${groups[group].short}: ` : "") + groups[group].title);
  const offset = textWidth(title, 15) + 10;
  return svg("g", {}, svg("text", { class: "ink bold", x: box.x0, y: box.y0 - 10, "font-size": 14 }, title),
    svg("text", { class: "soft", x: box.x0 + offset, y: box.y0 - 10, "font-size": 12 },
      fitText(named.join(" · "), 12, panel.x + panel.width - box.x0 - offset - 6)));
};

// A row that is bound by L1, L2 or L3 stands at that level's intensity, too; with all levels shown, each row at each.
const drawTrail = (place, panel, layer) => {
  const { point } = place;
  const levels = state.level === "all" ? trailLevels(point) : otherLevel(point);
  const stops = levels.map((level) => ({ level, x: panel.scale.x(intensityAt(point, level)) }))
    .filter((stop) => Math.abs(stop.x - place.home.x) > 4).sort((a, b) => a.x - b.x);
  if (!stops.length) return;
  const ends = [place.home.x, ...stops.map((stop) => stop.x)];
  const line = clip(panel.box, [Math.min(...ends), place.home.y, Math.max(...ends), place.home.y]);
  if (!line) return;
  const trail = svg("g", { class: "trail", "data-of": point.index });
  trail.append(lineElement(line, { class: `bound reach c-${point.precision}` }));
  for (const stop of stops.filter((stop) => inside(panel.box, stop.x, place.home.y))) {
    trail.append(svg("circle", { class: `bound c-${point.precision}`, cx: stop.x.toFixed(1), cy: place.home.y.toFixed(1), r: 2.6 },
      svg("title", {}, `${point.label} at ${view().levelNames[stop.level]}`)));
  }
  layer.append(trail);
};

// ---- lines between points -------------------------------------------------------------------------------------------

// The best point of each layer, group and precision.
const bestPlaces = (places) => {
  const best = new Map();
  for (const place of places) {
    const { point } = place;
    const key = `${point.layer} ${point.precision} ${point.group}`;
    if (!(best.get(key)?.point.seconds <= point.seconds)) best.set(key, place);
  }
  return [...best.values()];
};

// Pairs of the same layer in two groups, the slower one first.
const joinsOf = (places) => {
  const layers = new Map();
  for (const place of bestPlaces(places)) {
    const key = `${place.point.layer} ${place.point.precision}`;
    layers.set(key, [...(layers.get(key) ?? []), place]);
  }
  return [...layers.values()].filter((list) => list.length > 1).flatMap((list) => {
    const ranked = list.sort((a, b) => b.point.seconds - a.point.seconds);
    return ranked.slice(1).map((place, rank) => [ranked[rank], place]);
  });
};

// Steps of one layer on one machine: its kernels from the slowest to the fastest, and a kernel's studies by date.
const stepsOf = (places) => {
  const ladders = new Map();
  for (const place of places) {
    const { point } = place;
    const { title, kind } = groups[point.group];
    const key = `${point.layer} ${point.dtype} ${point.cold} ${title.split(" · ")[0]} ${point.threads} ${kind}`;
    ladders.set(key, [...(ladders.get(key) ?? []), place]);
  }
  return [...ladders.values()].flatMap((list) => {
    const own = list.filter(({ point }) => !/^(onednn|cudnn|pytorch)/.test(point.series));
    const kinds = new Map();
    for (const place of own) {
      const kind = `${place.point.kernel} ${place.point.precision} ${place.point.series} ${place.point.study}`;
      if (!kinds.has(kind)) kinds.set(kind, place);
    }
    const studies = new Set(own.map(({ point }) => point.study));
    const kernels = new Set(own.map(({ point }) => point.kernel + point.precision));
    const byDate = studies.size > 1 && kernels.size === 1;
    const ranked = [...kinds.values()].sort((a, b) =>
      byDate ? a.point.date.localeCompare(b.point.date) : b.point.seconds - a.point.seconds);
    return ranked.slice(1).map((place, rank) => [ranked[rank], place]);
  });
};

const arrowHead = (a, b) => {
  const degrees = (Math.atan2(b.y - a.y, b.x - a.x) * 180) / Math.PI;
  return svg("path", { class: "arrow", d: "M-13-3.5L-6 0L-13 3.5Z",
    transform: `translate(${b.x.toFixed(1)} ${b.y.toFixed(1)}) rotate(${degrees.toFixed(1)})` });
};

// A line from `a` to `b` with the factor of their times: how much faster `b` is.
const drawFactor = ([a, b], kind, layer, taken) => {
  const text = factorText(a.point.seconds / b.point.seconds);
  const x = (a.x + b.x) / 2, y = (a.y + b.y) / 2, half = textWidth(text, 11) / 2 + 3;
  const join = svg("g", { class: `join ${kind}`, "data-a": a.point.index, "data-b": b.point.index },
    lineElement([a.x, a.y, b.x, b.y], { class: "stroke" }));
  if (kind === "step") join.append(arrowHead(a, b));
  const spot = { x0: x - half, x1: x + half, y0: y - 8, y1: y + 8 };
  if (!taken || (taken.isFree(spot) && (taken.add(spot), true))) {
    join.append(svg("rect", { class: "chip", x: spot.x0, y: spot.y0, width: 2 * half, height: 16, rx: 4 }),
      svg("text", { class: "ink mid", x, y: y + 4, "font-size": 11 }, text));
  }
  layer.append(join);
};

// ---- names of points ------------------------------------------------------------------------------------------------

const kNameSize = 11;
const nameSpots = (place, width, radius) => {
  const gap = radius + 3, { x, y } = place;
  const at = (x0, y0, near) => ({ x0, x1: x0 + width, y0, y1: y0 + 13, near });
  return [at(x + gap, y - 6, true), at(x - gap - width, y - 6, true), at(x - width / 2, y - gap - 13, true),
    at(x - width / 2, y + gap, true), at(x + gap, y - 20, true), at(x + gap, y + 8, true),
    at(x + gap + 14, y - 32), at(x - gap - width - 14, y - 32), at(x + gap + 14, y + 20), at(x - gap - width - 14, y + 20),
    at(x - width / 2, y - gap - 34), at(x - width / 2, y + gap + 22)];
};
const nameBox = (place, longest) => {
  const radius = radiusOf(place.point, longest) + 1;
  return { x0: place.x - radius, x1: place.x + radius, y0: place.y - radius, y1: place.y + radius };
};
// Names of the rows that take most time come first; a name stands once for points of one layer in one column.
const drawNames = (panel, layer, taken, longest) => {
  const named = [];
  const most = Math.floor(((panel.box.x1 - panel.box.x0) * (panel.box.y1 - panel.box.y0)) / 7000);
  for (const place of [...panel.places].sort((a, b) => timeOf(b.point) - timeOf(a.point))) {
    if (named.length >= most) break;
    const same = (other) => other.point.label === place.point.label && Math.abs(other.x - place.x) < 8;
    if (named.some(same)) continue;
    const text = fitText(place.point.label, kNameSize, 150), width = textWidth(text, kNameSize) + 2;
    const spot = nameSpots(place, width, radiusOf(place.point, longest)).find((candidate) => taken.take(candidate));
    if (!spot) continue;
    named.push(place);
    const group = svg("g", { class: "name", "data-of": place.point.index });
    if (!spot.near) {
      const x = clamp(place.x, spot.x0, spot.x1), y = clamp(place.y, spot.y0, spot.y1);
      group.append(lineElement([place.x, place.y, x, y], { class: "leader" }));
    }
    group.append(svg("text", { class: "ink halo", x: spot.x0 + 1, y: spot.y1 - 3, "font-size": kNameSize }, text));
    layer.append(group);
  }
};

// ---- drawing --------------------------------------------------------------------------------------------------------

const placePoints = (panel) => {
  const member = new Set(panel.groups);
  for (const point of shown) {
    if (!member.has(point.group) || !canBeDrawn(point)) continue;
    const home = { x: panel.scale.x(intensityAt(point, levelOf(point))), y: panel.scale.y(heightOf(point)) };
    if (inside(panel.box, home.x, home.y)) panel.places.push({ point, panel, home, x: home.x, y: home.y });
  }
  spreadPlaces(panel);
};

// So that no text crosses a roof.
const coverLine = (taken, [x0, y0, x1, y1]) => {
  const steps = Math.ceil(Math.hypot(x1 - x0, y1 - y0) / 4);
  for (let step = 0; step <= steps; ++step) {
    const x = x0 + ((x1 - x0) * step) / steps, y = y0 + ((y1 - y0) * step) / steps;
    taken.add({ x0: x, x1: x, y0: y, y1: y });
  }
};

const drawPanel = (panel, longest) => {
  const root = svg("g", { class: "panel" });
  const roofs = svg("g", { class: "roofs" }), trails = svg("g"), marks = svg("g"), names = svg("g", { class: "names" });
  root.append(drawAxes(panel), roofs, trails, marks, names, drawTitle(panel));
  drawRoofs(panel, roofs);
  placePoints(panel);
  const taken = coverOf(panel.box);
  for (const place of panel.places) taken.add(nameBox(place, longest));
  drawWalls(panel, roofs, taken);
  for (const { line, strong, roof } of panel.roofNames) if (strong || roof.bandwidth) coverLine(taken, line);
  nameSlopes(panel, roofs, taken);
  nameFlatRoofs(panel, roofs, taken);
  // Small marks over large ones, flagged ones on top.
  const order = [...panel.places].sort((a, b) =>
    a.point.flags.length - b.point.flags.length || (state.sized ? timeOf(b.point) - timeOf(a.point) : 0));
  for (const place of order) {
    if (place.spread) trails.append(lineElement([place.home.x, place.home.y, place.x, place.y], { class: "leader" }));
    drawTrail(place, panel, trails);
    place.mark = drawPoint(place, panel, longest);
    marks.append(place.mark);
    placeOf.set(place.point.index, place);
  }
  panel.taken = taken;
  panel.names = names;
  return root;
};

// In one panel, a factor must not cover marks; between panels there is room.
const drawJoins = (pairs, kind, layer) => {
  for (const pair of pairs) drawFactor(pair, kind, layer, pair[0].panel === pair[1].panel ? pair[0].panel.taken : null);
};

let focusedPoint = -1;
// On the page the filters say what marks mean. On paper and in saved pictures this does.
const kLegendLine = 20, kLegendTop = 14;
const drawLegend = (width, top) => {
  const legend = svg("g", { class: "legend", "aria-hidden": "true" });
  let x = 12, y = top + kLegendTop;
  const entry = (mark, text) => {
    const room = 20 + textWidth(text, 11.5) + 18;
    if (x > 12 && x + room > width - 8) (x = 12), (y += kLegendLine);
    mark.setAttribute("x", x);
    mark.setAttribute("y", y - 11);
    legend.append(mark, svg("text", { class: "ink", x: x + 20, y, "font-size": 11.5 }, text));
    x += room;
  };
  for (const facet of ["device", "precision", "source", "cache"]) {
    const values = unique(shown.filter(canBeDrawn).map((point) => point.facets[facet]));
    if (values.length < 2 && !["device", "precision", "source"].includes(facet)) continue;
    const words = { source: (value) => `${value} Q`, cache: (value) => `${value} cache` }[facet] ?? ((value) => value);
    for (const value of values.filter((value) => swatchOf(facet, value))) entry(swatchOf(facet, value), words(value));
  }
  if (shown.some((point) => point.flags.length))
    entry(svg("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14" }, svg("circle", { class: "flag", r: 5.5 })), "flagged: see the table");
  legend.dataset.height = y - top + 10;
  return legend;
};

const kPaperWidth = 980;  // pixels: two panels side by side
let onPaper = false;
const draw = () => {
  const hadFocus = figure?.contains(document.activeElement);
  const width = onPaper ? kPaperWidth : Math.max(280, canvas.clientWidth);
  panels = layOut(width);
  placeOf = new Map();
  const drawable = shown.filter(canBeDrawn);
  for (const panel of panels) panel.axes = state.overlay || state.sameAxes ? "all" : groups[panel.groups[0]].kind;
  for (const panel of panels) {
    const alike = panels.filter((other) => other.axes === panel.axes).flatMap((other) => other.groups);
    panel.scale = scaleOf(
      state.views[panel.axes] ?? rangeOf(drawable.filter((point) => alike.includes(point.group)), alike), panel.box);
  }
  const bottom = Math.max(...panels.map((panel) => panel.box.y1)) + 44;
  const legend = drawLegend(width, bottom);
  const height = onPaper ? bottom + Number(legend.dataset.height) : bottom;
  const next = svg("svg", { class: "figure", width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": `${document.title}. Arrow keys move between points, Enter pins one, Escape lets go, plus and minus zoom.` });
  const longest = longestTime();
  for (const panel of panels) next.append(drawPanel(panel, longest));
  const joins = svg("g", { class: "joins" });
  next.append(joins, svg("g", { class: "hover", "aria-hidden": "true" }), legend);
  const places = [...placeOf.values()];
  if (state.joins) drawJoins(joinsOf(places), "pair", joins);
  if (state.steps) drawJoins(stepsOf(places), "step", joins);
  if (state.names) for (const panel of panels) drawNames(panel, panel.names, panel.taken, longest);
  if (figure) figure.replaceWith(next);
  else canvas.append(next);
  figure = next;
  // One point can be reached by Tab: the one that had the focus, or the first.
  const entry = markOf(focusedPoint) ?? one(".point", figure);
  entry?.setAttribute("tabindex", 0);
  if (hadFocus && markOf(focusedPoint)) markOf(focusedPoint).focus({ preventScroll: true });
  note(places.length);
};
const markOf = (index) => placeOf.get(index)?.mark;

const noteLine = html("p", { class: "note soft" });
const note = (drawn) => {
  const parts = [view() === instructionView
    ? "bars: down to the instructions of threads that were neither inactive nor predicated off"
    : "bars: quartiles · bands: quartiles of a roof, or how far it drifted"];
  if (state.level !== "all" && shown.some((point) => placeOf.has(point.index) && otherLevel(point).some((level) => level !== levelOf(point))))
    parts.push("small ring on a dotted line: the same row at the cache that bounds it");
  if (shown.some((point) => point.flags.length)) parts.push("red ring: flagged, the table says why");
  const moving = shown.filter((point) => point.group < 0).length;
  const rowsHave = (count) => count === 1 ? "1 row has" : `${count} rows have`;
  if (moving) parts.push(`${rowsHave(moving)} no FLOP: the table has ${moving === 1 ? "its" : "their"} GB/s`);
  const absent = shown.filter((point) => point.group >= 0 && !canBeDrawn(point)).length;
  if (absent) parts.push(`${rowsHave(absent)} ${view().missing(levelName(state.level))}`);
  const outside = shown.length - moving - absent - drawn;
  if (outside > 0) parts.push(`${outside} outside of this view`);
  noteLine.textContent = parts.join(" · ");
};
