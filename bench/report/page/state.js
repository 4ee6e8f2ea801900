// What the reader chose. All of it is in the address behind "#", so that a link or a reload brings the same view back.
const kDefaults = () => ({
  theme: "",        // "light", "dark", or the system's
  view: "time",     // what the axes show: a key of kViews
  level: "dram",    // whose intensity the points stand at; "bound": the one that bounds the row; "all": a trail
  query: "",
  off: {},          // facet -> values that are hidden
  roofsOff: new Set(study.minorRoofs),
  groupsOff: new Set(),
  overlay: false,   // all groups in one panel
  sameAxes: false,  // CPU and GPU panels on one pair of axes
  joins: false,     // the same layer on several machines
  steps: false,     // kernels of one layer, from the slowest on
  sized: false,     // a point's area is T times its count
  names: true,
  views: {},        // after a zoom: axes -> {x: [lo, hi], y: [lo, hi]} as powers of ten
  pinned: -1,
});

const roofKey = (roof) => (roof.bandwidth ? "level " + roof.level : roof.isa + " " + roof.dtype);
// Without fused multiply-adds, where the same vectors have a higher roof with them: hidden until asked for.
study.minorRoofs = unique(groups.flatMap((group) => group.roofs.filter((roof) => roof.minor).map(roofKey)));
let state = kDefaults();

const kFlags = ["overlay", "sameAxes", "joins", "steps", "sized"];
const sameSet = (a, b) => a.size === b.size && [...a].every((value) => b.has(value));

const hashOf = () => {
  const fields = new URLSearchParams();
  if (state.theme) fields.set("theme", state.theme);
  if (state.view !== "time") fields.set("axes", state.view);
  if (state.level !== "dram") fields.set("level", state.level);
  if (state.query) fields.set("q", state.query);
  for (const [facet, values] of Object.entries(state.off)) {
    for (const value of values) fields.append("hide", `${facet}:${value}`);
  }
  if (!sameSet(state.roofsOff, new Set(study.minorRoofs))) {
    fields.set("roofs", "");
    for (const key of state.roofsOff) fields.append("noroof", key);
  }
  for (const group of state.groupsOff) fields.append("nogroup", group);
  for (const flag of kFlags) if (state[flag]) fields.set(flag, "1");
  if (!state.names) fields.set("names", "0");
  for (const [axes, view] of Object.entries(state.views)) {
    fields.append("view", [axes, ...[...view.x, ...view.y].map((power) => power.toFixed(4))].join(","));
  }
  if (state.pinned >= 0) fields.set("point", state.pinned);
  return fields.toString();
};

// Anything may be in an address: what makes no sense is left out.
const readHash = () => {
  const fields = new URLSearchParams(location.hash.slice(1));
  state = kDefaults();
  const theme = fields.get("theme") ?? (fields.has("dark") ? "dark" : fields.has("light") ? "light" : "");
  if (theme === "dark" || theme === "light") state.theme = theme;
  if (viewsWithPoints().includes(fields.get("axes"))) state.view = fields.get("axes");
  if (!kLevels().some(([level]) => level === "dram")) state.level = kLevels()[0][0];
  if (kLevels().some(([level]) => level === fields.get("level"))) state.level = fields.get("level");
  state.query = fields.get("q") ?? "";
  for (const hidden of fields.getAll("hide")) {
    const colon = hidden.indexOf(":");
    const facet = hidden.slice(0, colon);
    if (study.facets.some((known) => known.name === facet)) {
      (state.off[facet] ??= new Set()).add(hidden.slice(colon + 1));
    }
  }
  if (fields.has("roofs")) state.roofsOff = new Set(fields.getAll("noroof"));
  state.groupsOff = new Set(fields.getAll("nogroup").map(Number).filter((group) => group in groups));
  for (const flag of kFlags) state[flag] = fields.get(flag) === "1";
  state.names = fields.get("names") !== "0";
  for (const field of fields.getAll("view")) {
    const [axes, ...ends] = field.split(",");
    const view = ends.map(Number);
    const isRange = view.length === 4 && view.every((power) => Math.abs(power) < 60) && view[0] < view[1] && view[2] < view[3];
    if (isRange && ["all", "cpu", "gpu"].includes(axes)) state.views[axes] = { x: view.slice(0, 2), y: view.slice(2) };
  }
  const pinned = Number(fields.get("point") ?? -1);
  if (points[pinned]) state.pinned = pinned;
};

let writing = 0;
const writeHash = () => {
  clearTimeout(writing);  // browsers refuse too many changes of the address in a short time
  writing = setTimeout(() => history.replaceState(null, "", "#" + hashOf()), 150);
};

// ---- which points are shown -----------------------------------------------------------------------------------------

const searched = points.map((point) =>
  [point.label, point.kernel, point.problem, ...Object.values(point.facets), ...point.flags].join("\n").toLowerCase());

const isShown = (point) =>
  !(point.group >= 0 && state.groupsOff.has(point.group)) &&
  Object.entries(state.off).every(([facet, values]) => !values.has(point.facets[facet])) &&
  state.query.toLowerCase().split(/\s+/).every((word) => searched[point.index].includes(word));

let shown = points;
const applyFilters = () => {
  shown = points.filter(isShown);
  shown.set = new Set(shown);
  if (state.pinned >= 0 && !shown.set.has(points[state.pinned])) state.pinned = -1;
};
