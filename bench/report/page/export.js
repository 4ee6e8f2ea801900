// The current view as a file: SVG with plain attributes, which every program reads, PNG drawn from it, CSV of the rows.

const kSavedStyles = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity",
  "font-size", "font-weight", "text-anchor", "paint-order"];
const figureText = () => {
  const copy = figure.cloneNode(true);
  const from = [figure, ...figure.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, rank) => {
    const style = getComputedStyle(element), target = to[rank];
    for (const name of ["class", "tabindex", "role", "aria-label", "aria-hidden", "data-i", "data-of", "data-height"]) target.removeAttribute(name);
    if (["title", "defs", "g", "marker", "svg"].includes(element.localName)) return;
    for (const name of kSavedStyles) {
      const value = style.getPropertyValue(name);
      if (value && !["normal", "none 0px", "auto"].includes(value)) target.setAttribute(name, value);
    }
    if (style.paintOrder === "normal") target.removeAttribute("paint-order");
  });
  copy.setAttribute("font-family", getComputedStyle(document.body).fontFamily);
  const { width } = figure.viewBox.baseVal;
  const height = figure.viewBox.baseVal.height + Number(one(".legend", figure).dataset.height);
  const head = one("h1").textContent, lines = one("header p").textContent;
  copy.setAttribute("viewBox", `0 -44 ${width} ${height + 44}`);
  copy.setAttribute("height", height + 44);
  copy.prepend(svg("rect", { x: 0, y: -44, width, height: height + 44,
    fill: getComputedStyle(document.documentElement).backgroundColor }));
  const ink = getComputedStyle(document.body).color;
  copy.append(svg("text", { x: 12, y: -24, "font-size": 16, "font-weight": 700, fill: ink }, head),
    svg("text", { x: 12, y: -7, "font-size": 11, fill: ink }, fitText(lines, 11, width - 24)));
  return new XMLSerializer().serializeToString(copy);
};

const save = (blob, name) => {
  const link = html("a", { download: name });
  link.href = URL.createObjectURL(blob);
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
const saveSvg = () => save(new Blob([figureText()], { type: "image/svg+xml" }), "view.svg");

const kPngScale = 2;
const pngBlob = () => new Promise((resolve, reject) => {
  const text = figureText();
  const picture = new Image();
  picture.onload = () => {
    const sheet = document.createElement("canvas");
    sheet.width = picture.width * kPngScale;
    sheet.height = picture.height * kPngScale;
    sheet.getContext("2d").drawImage(picture, 0, 0, sheet.width, sheet.height);
    sheet.toBlob(resolve, "image/png");
  };
  picture.onerror = () => reject(new Error("the figure can't be drawn as a picture"));
  picture.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
});
const savePng = () => pngBlob().then((blob) => save(blob, "view.png"));

// A spreadsheet must not run a text of the study as a formula.
const csvCell = (value) => {
  let text = String(value ?? "");
  if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const csvText = () => {
  const heads = ["name", "device", "precision", "kernel", "cache", "seconds", "q1", "q3", "count", "flop", "q_dram_bytes",
    "q_source", "flop_per_byte", "gflops", "gb_per_second", "percent_of_roof", "bound", "roof", "flags", "problem",
    "level"];
  const lines = shown.map((point) => {
    const level = farthestLevel(point);
    const { bytes } = point.traffic[level];
    return [point.label, point.series, point.precision, point.kernel, point.facets.cache, point.seconds, point.q1, point.q3,
      point.count, point.flop, point.traffic.dram?.bytes, point.source, point.flop / bytes, flopsOf(point) / 1e9, bytes / point.seconds / 1e9,
      point.percent, point.bound, point.roof, point.flags.join("; "), point.problem, level].map(csvCell).join(",");
  });
  return [heads.join(","), ...lines].join("\r\n") + "\r\n";
};
const saveCsv = () => save(new Blob([csvText()], { type: "text/csv" }), "view.csv");
