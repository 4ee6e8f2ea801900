// What a point tells when it is under the pointer, in focus or pinned: its card, its roof, its row, its partners.

const card = html("div", { class: "card", hidden: true });
let hovered = -1;

const rowOf = (index) => rowOfPoint[index];

const fillCard = (point, crowd) => {
  const list = html("dl");
  for (const [name, value] of point.rows) list.append(html("dt", {}, name), html("dd", {}, value));
  card.replaceChildren(html("h4", {}, point.title), list);
  if (crowd > 1) card.append(html("p", { class: "soft" }, `${crowd} points in this spot: a click spreads them.`));
};

// Beside the plot if there is room, so that it hides no point near this one; else beside the point; on a narrow screen
// below or above it. Where it is higher than that, it scrolls.
const placeCard = (mark, plot) => {
  card.style.maxHeight = "";
  const at = one(".mark", mark).getBoundingClientRect(), origin = figure.getBoundingClientRect().left;
  const width = card.offsetWidth, gap = 14, edge = 8;
  let height = card.offsetHeight;
  const roomX = document.documentElement.clientWidth, roomY = document.documentElement.clientHeight;
  const places = [origin + plot.x1 + gap, origin + plot.x0 - gap - width, at.right + gap];
  let left = places.find((x) => x >= edge && x + width <= roomX - edge) ?? at.left - gap - width;
  let top = at.top + at.height / 2 - height / 2;
  if (left < edge) {
    left = clamp(at.left - width / 2, edge, Math.max(edge, roomX - width - edge));
    const below = roomY - edge - at.bottom - gap, above = at.top - gap - edge;
    if (height > below && height > above) {
      height = Math.max(below, above, 120);
      card.style.maxHeight = `${height}px`;
    }
    top = height > below ? at.top - gap - height : at.bottom + gap;
  }
  card.classList.toggle("scrolls", card.style.maxHeight !== "");
  card.style.transform = `translate(${Math.round(left)}px,${Math.round(clamp(top, edge, Math.max(edge, roomY - height - edge)))}px)`;
};

let lit = [];
const lightUp = (element) => {
  if (!element) return;
  element.classList.add("lit");
  lit.push(element);
};
const clearLight = () => {
  for (const element of lit) element.classList.remove("lit");
  lit = [];
  one(".hover", figure)?.replaceChildren();
};

// The same layer elsewhere: the best of each other group, and how much faster one is than the other.
const partnersOf = (place) => bestPlaces([...placeOf.values()].filter((other) =>
  other.point.layer === place.point.layer && other.point.precision === place.point.precision &&
  other.point.group !== place.point.group));

const light = (index) => {
  clearLight();
  lightUp(rowOf(index));
  const place = placeOf.get(index), mark = markOf(index);
  if (!place || !mark) return;
  lightUp(mark);
  const layer = one(".hover", figure);
  drawUsedRoof(place.point, place.panel, place, layer);
  for (const other of partnersOf(place)) {
    const pair = [place, other].sort((a, b) => b.point.seconds - a.point.seconds);
    drawFactor(pair, "pair", layer, null);
    lightUp(markOf(other.point.index));
  }
};

// The pinned point's details, unless another is under the pointer or in focus.
const showDetails = (index) => {
  hovered = index;
  const current = index >= 0 ? index : state.pinned;
  const mark = current >= 0 ? markOf(current) : null;
  if (!mark) {
    clearLight();
    card.hidden = true;
    if (current >= 0) lightUp(rowOf(current));
    return;
  }
  light(current);
  fillCard(points[current], crowdAt(placeOf.get(current)).length);
  card.hidden = false;
  placeCard(mark, placeOf.get(current).panel.box);
};

const pin = (index) => {
  for (const old of all(".point.pinned")) old.classList.remove("pinned");
  state.pinned = index;
  markOf(index)?.classList.add("pinned");
  if (index >= 0 && !rowOf(index).isConnected) showRows(rowsShown);
  showDetails(index);
  writeHash();
};
const letGo = () => {
  const wasSpread = spread !== null;
  spread = null;
  pin(-1);
  if (wasSpread) draw();
};

const pointUnder = (event) => {
  const mark = event.target.closest?.(".point");
  return mark ? Number(mark.dataset.i) : -1;
};

const clickPoint = (index) => {
  const crowd = crowdAt(placeOf.get(index)).map((place) => place.point.index);
  const isSpread = spread?.has(index);
  if (!isSpread && crowd.length > 1) {
    spread = new Set(crowd);
    draw();
  }
  pin(index);
};

const listenToPoints = () => {
  canvas.addEventListener("pointerover", (event) => {
    const index = pointUnder(event);
    if (index !== hovered && (index >= 0 || hovered >= 0)) showDetails(index);
  });
  canvas.addEventListener("pointerleave", () => showDetails(-1));
  canvas.addEventListener("focusin", (event) => {
    const index = pointUnder(event);
    if (index < 0) return;
    focusedPoint = index;
    showDetails(index);
  });
  canvas.addEventListener("focusout", () => showDetails(-1));
  canvas.addEventListener("click", (event) => {
    if (wasDragged) return;
    const index = pointUnder(event);
    if (index >= 0) clickPoint(index);
    else letGo();
  });
  addEventListener("scroll", () => !card.hidden && showDetails(hovered), { passive: true });
};
