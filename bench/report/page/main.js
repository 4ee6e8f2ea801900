// Puts the page together.

groups.forEach((group, index) => (group.short = /^\w+: /.test(group.title) && groups.length < 3
  ? group.kind.toUpperCase() : `${group.kind.toUpperCase()}${groups.filter((other) => other.kind === group.kind).length > 1 ? " " + (index + 1) : ""}`));

const place = one("#study");
place.replaceChildren(toolbar, canvas, noteLine);
document.body.append(card);

// Links to what a keyboard would else reach after hundreds of points and controls.
const skipTo = (text, find) => button(text, { class: "skip" }, () => {
  const target = find();
  target?.focus();
  target?.scrollIntoView({ block: "nearest" });
});
one("nav.skip").append(skipTo("Skip to the figure", () => one(".point", figure)),
  skipTo("Skip to the table", () => document.getElementById("measurements").parentElement));

const restore = () => {
  readHash();
  applyTheme();
  applyFilters();
  buildControls();
  filterTable();
  draw();
  showDetails(-1);
};
for (const table of all("table")) makeSortable(table);
joinRowsToPoints();
restore();
listenToPoints();
listenToPointer();
listenToKeys();
addEventListener("hashchange", restore);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
let lastWidth = canvas.clientWidth;
addEventListener("resize", () => {
  if (canvas.clientWidth === lastWidth) return;
  lastWidth = canvas.clientWidth;
  redrawSoon();
});
const drawOnPaper = (paper) => {
  onPaper = paper;
  if (paper) showRows(Infinity);
  draw();
};
addEventListener("beforeprint", () => drawOnPaper(true));
addEventListener("afterprint", () => drawOnPaper(false));
