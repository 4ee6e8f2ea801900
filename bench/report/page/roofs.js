// Roofs: lines of bandwidth, flat lines of arithmetic, their names.

// [x0, y0, x1, y1] in pixels, clipped; null outside the panel.
const roofLine = (roof, roofs, scale) => {
  const { ranges, box } = scale;
  const left = 10 ** (ranges.x[0] - 1), right = 10 ** (ranges.x[1] + 1);
  if (roof.bandwidth) {
    const end = Math.min(right, topOf(roofs) > 0 ? topOf(roofs) / roof.value : right);
    return clip(box, [scale.x(left), scale.y(left * roof.value), scale.x(end), scale.y(end * roof.value)]);
  }
  const steepest = Math.max(0, ...roofs.filter((other) => other.bandwidth).map((other) => other.value));
  const begin = steepest > 0 ? roof.value / steepest : left;
  return begin > right ? null : clip(box, [scale.x(begin), scale.y(roof.value), scale.x(right), scale.y(roof.value)]);
};

const lineElement = ([x1, y1, x2, y2], attributes) =>
  svg("line", { x1: x1.toFixed(1), y1: y1.toFixed(1), x2: x2.toFixed(1), y2: y2.toFixed(1), ...attributes });

// A measured roof is a band: from its lowest to its highest quartile.
const roofBand = (roof, roofs, scale) => {
  const low = roofLine({ ...roof, value: roof.low ?? roof.q1 }, roofs, scale);
  const high = roofLine({ ...roof, value: roof.high ?? roof.q3 }, roofs, scale);
  if (!low || !high || Math.hypot(low[0] - high[0], low[1] - high[1]) < 1.5) return null;
  const corners = [[low[0], low[1]], [low[2], low[3]], [high[2], high[3]], [high[0], high[1]]];
  return svg("polygon", { class: "band", points: corners.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ") });
};

const drawRoofs = (panel, layer) => {
  for (const group of panel.groups) {
    const roofs = visibleRoofs(group), strong = strongRoofs(roofs);
    for (const roof of roofs) {
      const line = roofLine(roof, roofs, panel.scale);
      if (!line) continue;
      const band = roofBand(roof, roofs, panel.scale);
      if (band) layer.append(band);
      const look = roof.bandwidth ? "slope" : strong.has(roof) ? `top c-${roof.dtype}` : "thin";
      const dashes = panel.groups.indexOf(group) > 0 ? " other" + (panel.groups.indexOf(group) % 3) : "";
      const element = lineElement(line, { class: `roof ${look}${dashes}`, "data-roof": roof.name });
      element.append(svg("title", {}, roofTitle(roof, group, panel)));
      layer.append(element);
      panel.roofNames.push({ roof, group, line, strong: strong.has(roof) });
    }
  }
};
// Access patterns: which instructions per transaction they have. Their names stand upright, left of the lines.
const drawWalls = (panel, layer, taken) => {
  const { scale } = panel, { box } = scale;
  for (const [name, intensity] of view().walls()) {
    const x = scale.x(intensity), y = box.y1 - 8;
    if (x < box.x0 || x > box.x1) continue;
    taken.add({ x0: x - 16, x1: x + 1, y0: y - textWidth(name, kRoofText), y1: y });
    layer.append(lineElement([x, box.y0, x, box.y1], { class: "wall" }),
      svg("text", { class: "soft halo", "font-size": kRoofText, transform: `translate(${(x - 4).toFixed(1)} ${y}) rotate(-90)` }, name));
  }
};
const roofTitle = (roof, group, panel) =>
  `${roof.name}: ${roof.text}${roof.doubt ? `; doubtful: ${roof.doubt}` : ""}${panel.groups.length > 1 ? ` (${groups[group].title})` : ""}`;

// Without the number of threads, which the panel's title has.
const shortName = (roof) => roof.name.replace(/, \d+ threads?$/, "");

// Names of flat roofs stand in the right margin, pushed apart; on narrow panels above the line's end.
const kRoofText = 11;
const nameFlatRoofs = (panel, layer, taken) => {
  const { box } = panel.scale;
  const flat = panel.roofNames.filter(({ roof }) => !roof.bandwidth).sort((a, b) => a.line[3] - b.line[3]);
  const step = kRoofText + 3;
  if (panel.margin < 60) {
    for (const { roof, strong, line } of flat) {
      const text = shortName(roof);
      const spot = { x0: box.x1 - 4 - textWidth(text, kRoofText), x1: box.x1 - 4, y0: line[3] - 14, y1: line[3] - 2 };
      if (!strong || spot.x0 < line[0] || !taken.take(spot)) continue;
      layer.append(svg("text", { class: `t-${roof.dtype} end halo`, x: spot.x1, y: line[3] - 4, "font-size": kRoofText }, text));
    }
    return;
  }
  let floor = box.y0 - 6;
  const lowest = box.y1 + 4 - step * (flat.length - 1);
  flat.forEach(({ roof, group, strong, line }, rank) => {
    const y = Math.max(floor, Math.min(line[3], lowest + rank * step));
    floor = y + step;
    const tag = panel.groups.length > 1 ? ` · ${groups[group].short}` : "";
    const text = fitText(`${shortName(roof)} · ${roof.text}${tag}`, kRoofText, panel.margin - 18);
    layer.append(lineElement([box.x1 + 1, line[3], box.x1 + 12, y], { class: "leader" }),
      svg("text", { class: strong ? `t-${roof.dtype}` : "soft", x: box.x1 + 14, y: y + 4, "font-size": kRoofText }, text));
  });
};

// The name of a bandwidth along its line, at the first place from the left that is free; null where there is none.
const nameAlong = (text, [x0, y0, x1, y1], box, taken) => {
  const length = Math.hypot(x1 - x0, y1 - y0), width = textWidth(text, kRoofText);
  const [ux, uy] = [(x1 - x0) / length, (y1 - y0) / length];
  for (let along = 6; along + width + 4 < length; along += 12) {
    const boxes = [];
    for (let at = 0; at < width; at += 9) {
      const x = x0 + ux * (along + at) + uy * 10, y = y0 + uy * (along + at) - ux * 10;
      boxes.push({ x0: x - 3, x1: x + 3, y0: y - 3, y1: y + 3 });
    }
    if (!boxes.every((spot) => inside(box, spot.x0, spot.y0) && taken.isFree(spot))) continue;
    boxes.forEach((spot) => taken.add(spot));
    const x = x0 + ux * along + uy * 4, y = y0 + uy * along - ux * 4;
    const degrees = (Math.atan2(uy, ux) * 180) / Math.PI;
    return { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) rotate(${degrees.toFixed(1)})` };
  }
  return null;
};
// The same level, right of its line, clear of the other lines.
const nameBeside = (text, line, lines, box, taken) => {
  const [x0, y0, x1, y1] = line, height = 12, width = textWidth(text, kRoofText);
  const run = (x1 - x0) / Math.max(y0 - y1, 1);  // pixels to the right for one up
  for (let y = y0 - height / 2 - 2; y - height / 2 > y1; y -= 6) {
    const x = x0 + (y0 - y + height / 2) * run + 3;
    const spot = { x0: x, x1: x + width, y0: y - height / 2, y1: y + height / 2 };
    const isClear = inside(box, spot.x0, spot.y0) && inside(box, spot.x1, spot.y1) && taken.isFree(spot) &&
      lines.every((other) => !clip(spot, other));
    if (!isClear) continue;
    taken.add(spot);
    return { x: x.toFixed(1), y: (y + 4).toFixed(1) };
  }
  return null;
};
// Where there is no room for a bandwidth, the name of the level alone.
const nameSlopes = (panel, layer, taken) => {
  const slopes = panel.roofNames.filter(({ roof }) => roof.bandwidth), lines = slopes.map(({ line }) => line);
  for (const { roof, group, line } of slopes) {
    const tag = panel.groups.length > 1 ? ` · ${groups[group].short}` : "";
    for (const text of [`${roof.title} ${roof.text}${tag}`, `${roof.title}${tag}`]) {
      const place = nameAlong(text, line, panel.scale.box, taken) ?? nameBeside(text, line, lines, panel.scale.box, taken);
      if (!place) continue;
      layer.append(svg("text", { class: "soft halo slope-name", "font-size": kRoofText, ...place }, text));
      break;
    }
  }
};

// The roof that the verdict used, through the point's place under it, and the room between.
const drawUsedRoof = (point, panel, place, layer) => {
  const attainable = view() === timeView ? attainableOf(point) : 0;
  if (!(attainable > 0)) return;
  const { scale } = panel, { ranges, box } = scale;
  const memory = point.bound.startsWith("memory:");
  const level = boundLevel(point);
  const left = 10 ** (ranges.x[0] - 1), right = 10 ** (ranges.x[1] + 1);
  const intensity = intensityAt(point, memory ? level : levelOf(point));
  // Overhead has no roof of its own; its verdict is the distance to the lowest roof, through the point's intensity.
  const slope = memory ? attainable / intensity : 0;
  const top = topOf(groups[point.group].roofs);
  const end = slope > 0 && top > 0 ? Math.min(right, top / slope) : right;
  const line = slope > 0
    ? clip(box, [scale.x(left), scale.y(left * slope), scale.x(end), scale.y(end * slope)])
    : clip(box, [scale.x(left), scale.y(attainable), scale.x(right), scale.y(attainable)]);
  if (line) layer.append(lineElement(line, { class: "used" }));
  const x = memory ? scale.x(intensity) : place.x;
  const room = clip(box, [x, scale.y(flopsOf(point)), x, scale.y(attainable)]);
  if (!room) return;
  layer.append(lineElement(room, { class: "room" }));
  if (Math.abs(x - place.x) > 1) layer.append(lineElement([place.x, place.y, x, place.y], { class: "room" }));
  const kBold = 1.12;  // of the width that textWidth() knows
  const most = box.x1 - box.x0 - 8;
  const text = fitText(point.headroom ?? `${point.percent.toFixed(0)} % of ${point.roof}`, 11.5 * kBold, most);
  const width = textWidth(text, 11.5 * kBold);
  const beside = x + 6 + width > box.x1 ? x - 6 - width : x + 6;
  layer.append(svg("text", { class: "ink bold halo", "font-size": 11.5, x: clamp(beside, box.x0 + 4, box.x1 - 4 - width),
    y: clamp(scale.y(attainable) - 5, box.y0 + 12, box.y1 - 4) }, text));
};
