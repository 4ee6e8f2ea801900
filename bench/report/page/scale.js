// Where points stand, and the axes around them: logarithms to base ten in, pixels out.

// ---- levels of memory -----------------------------------------------------------------------------------------------

const levelName = (level) =>
  ({ bound: "the limiting level", all: "each level" }[level] ?? view().levelNames[level]);
const kLevels = () => {
  const named = view().levels().map((level) => [level, view().levelNames[level]]);
  if (named.length < 2) return named;
  const bound = view() === instructionView ? [] : [["bound", "the limiting level"]];
  return [...named, ...bound, ["all", "all levels, as a trail"]];
};
// The levels of a trail: those through which all of a row's work goes.
const trailLevels = (point) => Object.keys(kMemories).filter((level) => view().has(point, level));

// The farthest level that a row has Q of: DRAM, but for a program's part whose data stay in the caches.
const farthestLevel = (point) => Object.keys(kMemories).find((level) => point.traffic[level]);
// "l2" for a row that is bound by L2 and has traffic there; else the farthest one.
const boundLevel = (point) => {
  const level = point.bound.startsWith("memory:") ? point.bound.slice(7) : "dram";
  return point.traffic[level] ? level : farthestLevel(point);
};
const levelOf = (point) => {
  if (state.level === "bound") return boundLevel(point);
  if (state.level !== "all" && state.level !== "dram") return state.level;
  return view() === instructionView ? "dram" : farthestLevel(point);
};
// Where a row stands, too, that another level bounds.
const otherLevel = (point) => (view() === timeView ? [boundLevel(point)] : []);
const intensityAt = (point, level) => view().x(point, level);
const heightOf = (point) => view().y(point, levelOf(point));
const flopsOf = (point) => point.flop / point.seconds;
const timeOf = (point) => point.seconds * point.count;
const canBeDrawn = (point) => point.group >= 0 && view().has(point, levelOf(point));

// FLOP/s that the verdict's roof allows; 0 without a verdict.
const attainableOf = (point) => (point.percent > 0 ? (flopsOf(point) * 100) / point.percent : 0);

// ---- ranges ---------------------------------------------------------------------------------------------------------

const visibleRoofs = (group) => view().roofs(groups[group]).filter((roof) => !state.roofsOff.has(roofKey(roof)));
const topOf = (roofs) => Math.max(0, ...roofs.filter((roof) => !roof.bandwidth).map((roof) => roof.value));

// The best of each data type is strong; the others are thin.
const strongRoofs = (roofs) => {
  const best = new Map();
  for (const roof of roofs) {
    if (!roof.bandwidth && !(best.get(roof.dtype)?.value >= roof.value)) best.set(roof.dtype, roof);
  }
  return new Set(best.values());
};

// Axes follow what is shown: the points, the highest roof of each data type and the ridge of DRAM.
const rangeOf = (shownPoints, groupIndices) => {
  const x = [], y = [];
  for (const point of shownPoints) {
    const levels = state.level === "all" ? trailLevels(point) : unique([levelOf(point), ...otherLevel(point)]);
    for (const level of levels) x.push(Math.log10(intensityAt(point, level)));
    y.push(Math.log10(heightOf(point)));
    if (view() === instructionView) y.push(Math.log10(heightOf(point) * Math.max(point.instructions.active, 0.01)));
  }
  for (const [, wall] of shownPoints.length ? view().walls() : []) x.push(Math.log10(wall));
  for (const index of groupIndices) {
    const roofs = visibleRoofs(index);
    const far = roofs.find((roof) => roof.bandwidth && roof.level === "dram") ?? roofs.find((roof) => roof.bandwidth);
    const strong = [...strongRoofs(roofs)];
    y.push(...strong.map((roof) => Math.log10(roof.value)));
    if (far && strong.length) x.push(Math.log10(Math.min(...strong.map((roof) => roof.value)) / far.value));
  }
  const padded = (values, below, above) =>
    values.length ? [Math.min(...values) - below, Math.max(...values) + above] : [0, 3];
  const ranges = { x: padded(x, 0.3, 0.25), y: padded(y, 0.2, 0.18) };
  for (const range of [ranges.x, ranges.y]) {
    const lack = 0.8 - (range[1] - range[0]);
    if (lack > 0) (range[0] -= lack / 2), (range[1] += lack / 2);
  }
  return ranges;
};

const scaleOf = (ranges, box) => {
  const place = (power, [lo, hi], from, to) => from + ((power - lo) / (hi - lo)) * (to - from);
  return {
    ranges, box,
    x: (intensity) => place(Math.log10(intensity), ranges.x, box.x0, box.x1),
    y: (flops) => place(Math.log10(flops), ranges.y, box.y1, box.y0),
    intensityAt: (x) => 10 ** (ranges.x[0] + ((x - box.x0) / (box.x1 - box.x0)) * (ranges.x[1] - ranges.x[0])),
  };
};
const inside = (box, x, y) => x >= box.x0 - 0.5 && x <= box.x1 + 0.5 && y >= box.y0 - 0.5 && y <= box.y1 + 0.5;

// The part of a segment in a box (Liang and Barsky); null where there is none.
const clip = (box, [x0, y0, x1, y1]) => {
  let from = 0, to = 1;
  const dx = x1 - x0, dy = y1 - y0;
  for (const [p, q] of [[-dx, x0 - box.x0], [dx, box.x1 - x0], [-dy, y0 - box.y0], [dy, box.y1 - y0]]) {
    if (p === 0 && q < 0) return null;
    if (p < 0) from = Math.max(from, q / p);
    if (p > 0) to = Math.min(to, q / p);
  }
  return from > to ? null : [x0 + from * dx, y0 + from * dy, x0 + to * dx, y0 + to * dy];
};

// Ticks at 1, 2, 5 of each decade where there is room for their text; minor lines at 1 … 9.
const ticksOf = ([lo, hi], length) => {
  const ticks = [];
  const decade = length / (hi - lo);
  const each = Math.max(1, Math.ceil(42 / decade));
  for (let power = Math.floor(lo); power <= hi && ticks.length < 400; ++power) {
    for (let mantissa = 1; mantissa < 10; ++mantissa) {
      const at = power + Math.log10(mantissa);
      if (at < lo - 1e-9 || at > hi + 1e-9) continue;
      const fine = decade > 620 ? true : decade > 130 && (mantissa === 2 || mantissa === 5);
      const named = mantissa === 1 ? power % each === 0 : fine;
      if (named || decade > 60) ticks.push({ at: 10 ** at, text: named ? tickText(10 ** at) : "" });
    }
  }
  return ticks;
};
const tickText = (value) => {
  const steps = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [size, prefix] = steps.find(([size]) => value >= size * 0.999) ?? [1, ""];
  return `${Number((value / size).toPrecision(2))}${prefix}`;
};
