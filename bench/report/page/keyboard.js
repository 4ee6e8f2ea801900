// Zoom and pan by pointer and wheel; arrows between points.

const viewOf = (panel) => structuredClone(panel.scale.ranges);

let drawing = 0;
const redrawSoon = () => {
  if (drawing) return;
  drawing = requestAnimationFrame(() => {
    drawing = 0;
    draw();
    showDetails(-1);
    writeHash();
  });
};

const panelAt = (x, y) => panels.find(({ box }) => inside(box, x, y));
const positionOf = (event) => {
  const frame = figure.getBoundingClientRect();
  return { x: event.clientX - frame.left, y: event.clientY - frame.top };
};

// Zooms by `factor` (above 1: in) around a place of the figure, or around the middle.
const zoom = (factor, at) => {
  const near = at && panelAt(at.x, at.y);
  if (!near) {  // around the middle of each panel
    for (const panel of panels.filter((one, rank) => panels.findIndex((other) => other.axes === one.axes) === rank)) {
      zoom(factor, { x: (panel.box.x0 + panel.box.x1) / 2, y: (panel.box.y0 + panel.box.y1) / 2 });
    }
    return;
  }
  const { box } = near, view = viewOf(near);
  const share = { x: (at.x - box.x0) / (box.x1 - box.x0), y: (box.y1 - at.y) / (box.y1 - box.y0) };
  const around = ([lo, hi], part) => {
    const size = clamp((hi - lo) / factor, 0.02, 40), center = lo + (hi - lo) * part;
    return [center - size * part, center + size * (1 - part)];
  };
  near.scale.ranges = state.views[near.axes] = { x: around(view.x, share.x), y: around(view.y, share.y) };
  redrawSoon();
};
const resetView = () => {
  state.views = {};
  spread = null;
  redrawSoon();
};

let wasDragged = false;
const listenToPointer = () => {
  const down = new Map();  // pointers on the figure
  let start = null;
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) return;  // a plain wheel scrolls the page
    event.preventDefault();
    zoom(Math.exp(-clamp(event.deltaY, -100, 100) / 200), positionOf(event));
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => pointUnder(event) < 0 && zoom(2, positionOf(event)));
  canvas.addEventListener("pointerdown", (event) => {
    wasDragged = false;
    const at = positionOf(event);
    const panel = panelAt(at.x, at.y);
    if (!panel || event.button > 0) return;
    down.set(event.pointerId, at);
    start = { panel, at, view: viewOf(panel) };
  });
  addEventListener("pointermove", (event) => {
    if (!down.has(event.pointerId) || !start) return;
    const at = positionOf(event), before = down.get(event.pointerId);
    if (down.size === 2) {  // two fingers: zoom by the change of their distance
      const other = [...down].find(([id]) => id !== event.pointerId)[1];
      const ratio = Math.hypot(at.x - other.x, at.y - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y));
      down.set(event.pointerId, at);
      zoom(ratio, { x: (at.x + other.x) / 2, y: (at.y + other.y) / 2 });
      wasDragged = true;
      return;
    }
    if (event.pointerType === "touch") return;  // one finger scrolls the page
    const dx = at.x - start.at.x, dy = at.y - start.at.y;
    if (!wasDragged && Math.hypot(dx, dy) < 5) return;
    wasDragged = true;
    const { box } = start.panel;
    const move = ([lo, hi], by) => [lo - by * (hi - lo), hi - by * (hi - lo)];
    state.views[start.panel.axes] = { x: move(start.view.x, dx / (box.x1 - box.x0)), y: move(start.view.y, -dy / (box.y1 - box.y0)) };
    redrawSoon();
  });
  const lift = (event) => down.delete(event.pointerId) && (start = null);
  addEventListener("pointerup", lift);
  addEventListener("pointercancel", lift);
};

// The nearest point in a direction; what lies aside counts twice.
const neighbourOf = (place, dx, dy) => {
  let best = null, least = Infinity;
  for (const other of placeOf.values()) {
    const along = (other.x - place.x) * dx + (other.y - place.y) * dy;
    const aside = Math.abs((other.x - place.x) * dy) + Math.abs((other.y - place.y) * dx);
    const same = other.x === place.x && other.y === place.y;
    // Points in the same place follow each other by number, so that none is out of reach.
    const forward = dx + dy > 0 ? other.point.index > place.point.index : other.point.index < place.point.index;
    const distance = same ? (other !== place && forward ? Math.abs(other.point.index - place.point.index) * 1e-6 : Infinity)
      : along > 0 ? along + 2 * aside : Infinity;
    if (distance < least) (least = distance), (best = other);
  }
  return best;
};

const listenToKeys = () => {
  const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const index = pointUnder(event);
    const direction = directions[event.key];
    if (direction && index >= 0) {
      event.preventDefault();
      const next = neighbourOf(placeOf.get(index), ...direction);
      if (next) focusPoint(next.point.index);
    } else if ((event.key === "Enter" || event.key === " ") && index >= 0) {
      event.preventDefault();
      clickPoint(index);
      focusPoint(index);
    } else if (event.key === "+" || event.key === "=") {
      zoom(1.5, placeOf.get(index));
    } else if (event.key === "-") {
      zoom(1 / 1.5, placeOf.get(index));
    } else if (event.key === "0") {
      resetView();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const focused = focusedPoint;
    letGo();
    card.hidden = true;
    if (figure.contains(document.activeElement)) markOf(focused)?.focus({ preventScroll: true }), (card.hidden = true);
  });
};
const focusPoint = (index) => {
  for (const old of all('.point[tabindex="0"]', figure)) old.setAttribute("tabindex", -1);
  const mark = markOf(index);
  mark?.setAttribute("tabindex", 0);
  mark?.focus({ preventScroll: false });
};
