// The controls above the figure: search, filters, roofs, what is drawn. They are made from the state and change it.

const toolbar = html("form", { class: "controls", "aria-label": "what is shown" });
const shownLine = html("p", { class: "shown", role: "status", "aria-live": "polite" });

const changed = () => {
  applyFilters();
  draw();
  showDetails(-1);
  filterTable();
  countShown();
  writeHash();
};
const countShown = () => (shownLine.textContent = `${shown.length} of ${points.length} measurements shown`);

// A swatch is a small mark: of a series in ink, of a precision in its colour.
const swatch = (path, look, glyph) => {
  const mark = svg("svg", { class: "swatch", width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" },
    svg("path", { class: `mark ${look}`, d: path, transform: `scale(${kRadius})`, "vector-effect": "non-scaling-stroke" }));
  if (glyph) mark.append(svg("path", { class: `glyph ${look}`, d: glyph, transform: `scale(${kRadius})`, "vector-effect": "non-scaling-stroke" }));
  return mark;
};
const circle = () => study.series.length ? study.circle ?? "M1 0C1 .552.552 1 0 1C-.552 1-1 .552-1 0C-1-.552-.552-1 0-1C.552-1 1-.552 1 0Z" : "";
const swatchOf = (facet, value) => {
  if (facet === "device" && seriesOf[value]) return swatch(seriesOf[value].path, "counter c-ink");
  if (facet === "precision") return swatch(circle(), `counter c-${value}`, precisionOf[value]?.path);
  if (facet === "source") return swatch(circle(), `${value} c-ink`);
  if (facet === "cache") return swatch(circle(), `${value === "warm" ? "" : "hollow "}counter c-ink`);
  return null;
};

const box = (name, checked, change, ...content) => {
  const input = html("input", { type: "checkbox" });
  input.checked = checked;
  input.addEventListener("change", () => {
    change(input.checked);
    changed();
  });
  input.setAttribute("aria-label", name);
  return html("label", {}, input, ...content);
};

const facetField = ({ name, title }) => {
  const values = unique(points.map((point) => point.facets[name]));
  if (values.length < 2 && !["device", "precision", "source"].includes(name)) return null;
  const off = () => (state.off[name] ??= new Set());
  const field = html("fieldset", { "data-facet": name }, html("legend", {}, title));
  const scroll = html("div", { class: "choices" });
  if (values.length > 3) {
    scroll.append(button("all", { class: "small" }, () => (off().clear(), rebuild())),
      button("none", { class: "small" }, () => (values.forEach((value) => off().add(value)), rebuild())));
  }
  for (const value of values) {
    const label = value || "(none)";
    const choice = box(`${title}: ${label}`, !state.off[name]?.has(value),
      (checked) => (checked ? off().delete(value) : off().add(value)), swatchOf(name, value), html("span", {}, label));
    one("input", choice).value = value;
    scroll.append(choice);
  }
  field.append(scroll);
  return field;
};

const roofField = (title, roofs) => {
  const keys = unique(roofs.map(roofKey));
  if (!keys.length) return null;
  const field = html("fieldset", { "data-roofs": title }, html("legend", {}, title));
  for (const key of keys) {
    const roof = roofs.find((one) => roofKey(one) === key);
    field.append(box(`roof ${key}`, !state.roofsOff.has(key), (checked) =>
      checked ? state.roofsOff.delete(key) : state.roofsOff.add(key), html("span", {}, roof.bandwidth ? roof.title : key)));
  }
  return field;
};
const roofFields = () => {
  const roofs = groups.flatMap((group) => group.roofs);
  const fields = unique(roofs.filter((roof) => !roof.bandwidth).map((roof) => roof.dtype)).map((dtype) =>
    roofField(`Roofs of ${dtype}`, roofs.filter((roof) => roof.dtype === dtype && !roof.bandwidth)));
  fields.push(roofField("Bandwidth of", roofs.filter((roof) => roof.bandwidth)));
  return fields.filter(Boolean);
};
const groupField = () => {
  if (groups.length < 2) return null;
  const field = html("fieldset", { "data-groups": true }, html("legend", {}, "Machines and threads"));
  groups.forEach((group, index) => field.append(box(group.title, !state.groupsOff.has(index), (checked) =>
    checked ? state.groupsOff.delete(index) : state.groupsOff.add(index),
    html("span", {}, `${group.kind.toUpperCase()} · ${group.title}`))));
  return field;
};

const toggle = (flag, text, title, act) => {
  const label = box(text, state[flag], (checked) => {
    state[flag] = checked;
    act?.(checked);
  }, html("span", {}, text));
  label.title = title;
  one("input", label).name = flag;
  return label;
};
const levelChoice = () => {
  const select = html("select", { name: "level" });
  for (const [level, name] of kLevels()) select.append(html("option", { value: level, selected: level === state.level }, name));
  select.addEventListener("change", () => {
    state.level = select.value;
    state.views = {};
    changed();
  });
  return html("label", {}, html("span", {}, view() === instructionView ? "Transactions of" : "Intensity at"), select);
};
const viewChoice = () => {
  const names = viewsWithPoints();
  if (names.length < 2) return null;
  const select = html("select", { name: "axes" });
  for (const name of names) select.append(html("option", { value: name, selected: name === state.view }, kViews[name].title));
  select.addEventListener("change", () => {
    state.view = select.value;
    state.views = {};
    if (!kLevels().some(([level]) => level === state.level)) state.level = kLevels()[0][0];
    rebuild();
  });
  return html("label", {}, html("span", {}, "Axes"), select);
};
const hasSteps = () => stepsOf(points.filter((point) => point.group >= 0).map((point) => ({ point }))).length > 0;
const hasJoins = () => joinsOf(points.filter((point) => point.group >= 0).map((point) => ({ point }))).length > 0;

const searchField = () => {
  const input = html("input", { type: "search", name: "q", placeholder: "Search layers, kernels, flags", "aria-label": "search" });
  input.value = state.query;
  input.addEventListener("input", () => {
    state.query = input.value;
    changed();
  });
  return input;
};

const theme = () => button(isDark() ? "Light" : "Dark", { class: "theme", "aria-label": `Switch to ${isDark() ? "light" : "dark"} colours` }, () => {
  state.theme = isDark() ? "light" : "dark";
  applyTheme();
  writeHash();
});
const isDark = () => (state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
const applyTheme = () => {
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  else delete document.documentElement.dataset.theme;
  const next = theme();
  const old = one(".theme");
  if (old) old.replaceWith(next);
  else one("header").append(next);
};

const openParts = new Set();
const part = (name, fields) => {
  if (!fields.length) return null;
  const details = html("details", { open: openParts.has(name) }, html("summary", {}, name), html("div", { class: "fields" }, ...fields));
  details.addEventListener("toggle", () => (details.open ? openParts.add(name) : openParts.delete(name)));
  return details;
};

const buildControls = () => {
  const toggles = html("div", { class: "line" }, searchField(), ...[viewChoice()].filter(Boolean), levelChoice());
  if (groups.length > 1) {
    toggles.append(toggle("overlay", "one panel", "All machines in one panel; each point's own roof is lit under the pointer"),
      toggle("sameAxes", "same axes", "CPU and GPU on one pair of axes"));
  }
  if (hasJoins()) toggles.append(toggle("joins", "join machines", "Join the same layer on several machines, with the factor of their times", (on) => {
    state.overlay = on;  // lines between panels would cross
    one("input[name=overlay]").checked = on;
  }));
  if (hasSteps()) toggles.append(toggle("steps", "kernel steps", "Arrows from the slowest kernel of a layer to the fastest, or from an older study to a newer one"));
  toggles.append(toggle("sized", "size by time", "A point's area is its time, times how often the layer occurs"),
    toggle("names", "names", "Names beside points"));
  const facets = study.facets.map(facetField).filter(Boolean);
  const first = facets.slice(0, 3);
  const act = html("div", { class: "line" },
    button("−", { "aria-label": "zoom out", class: "small" }, () => zoom(1 / 1.5)),
    button("+", { "aria-label": "zoom in", class: "small" }, () => zoom(1.5)),
    button("Reset view", { class: "small", name: "reset" }, resetView),
    html("span", { class: "gap" }),
    button("PNG", { class: "small", name: "png", title: "This view as a picture" }, savePng),
    button("SVG", { class: "small", name: "svg", title: "This view as a drawing" }, saveSvg),
    button("CSV", { class: "small", name: "csv", title: "The rows that are shown" }, saveCsv), shownLine);
  toolbar.replaceChildren(toggles, html("div", { class: "fields" }, ...first),
    ...[part("More filters", facets.slice(3)), part("Roofs", [groupField(), ...roofFields()].filter(Boolean))].filter(Boolean), act);
  countShown();
};
const rebuild = () => {
  changed();
  buildControls();
};
toolbar.addEventListener("submit", (event) => event.preventDefault());
