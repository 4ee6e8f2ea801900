// Tables: sorting, and the rows of the points that are shown.

// A browser takes seconds to lay out a table of thousands of rows, so only the first are in the page; more follow when
// the reader scrolls to the end, all with a button or on paper.
const kRowsAtOnce = 80;
let tableRows = [];     // of the measurements, in the order of the table
const rowOfPoint = [];  // by index of the point
let rowsShown = kRowsAtOnce;
const moreRows = button("", { class: "small more" }, () => showRows(Infinity));

const showRows = (most) => {
  rowsShown = most;
  const body = document.getElementById("measurements").tBodies[0];
  const chosen = tableRows.filter((row) => shown.set.has(points[Number(row.dataset.i)]));
  const pinned = rowOfPoint[state.pinned];
  const visible = chosen.slice(0, rowsShown);
  if (pinned && !visible.includes(pinned)) visible.unshift(pinned);  // its row is there, wherever it would stand
  body.replaceChildren(...visible);
  moreRows.hidden = visible.length >= chosen.length;
  moreRows.textContent = `Show all ${chosen.length} rows (${visible.length} now)`;
};
const filterTable = () => showRows(kRowsAtOnce);

const cellValue = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
};
const compare = (a, b) =>
  typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true, sensitivity: "base" });
const makeSortable = (table) => {
  const heads = all("thead th", table);
  heads.forEach((head, column) => {
    const sorter = button(head.textContent, {}, () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const isMain = table.id === "measurements";
      const keyed = (isMain ? tableRows : [...table.tBodies[0].rows]).map((row) => [cellValue(row, column), row]);
      keyed.sort((a, b) => compare(a[0], b[0]) * (falling ? -1 : 1));
      const sorted = keyed.map(([, row]) => row);
      if (isMain) (tableRows = sorted), showRows(rowsShown);
      else table.tBodies[0].append(...sorted);
    });
    head.replaceChildren(sorter);
  });
};

// A row and its point: the pointer on either lights both; a click on the row's name pins the point.
const joinRowsToPoints = () => {
  const table = document.getElementById("measurements");
  tableRows = all("tbody tr", table);
  table.tBodies[0].replaceChildren();
  table.classList.add("ready");
  table.parentElement.after(moreRows);
  table.parentElement.addEventListener("scroll", ({ target }) => {
    if (!moreRows.hidden && target.scrollTop + target.clientHeight > target.scrollHeight - 200) showRows(rowsShown + 200);
  }, { passive: true });
  for (const row of tableRows) {
    const index = Number(row.dataset.i);
    rowOfPoint[index] = row;
    if (points[index].group < 0) continue;
    const head = row.cells[0];
    head.replaceChildren(button(head.textContent, { class: "plain", title: "Show this row in the figure" }, () => {
      pin(index);
      canvas.scrollIntoView({ block: "nearest" });
      focusPoint(index);
    }));
  }
  const rowUnder = (event) => event.target.closest("tbody tr");
  table.addEventListener("pointerover", (event) => {
    const row = rowUnder(event);
    if (row) light(Number(row.dataset.i));
  });
  table.addEventListener("pointerleave", () => showDetails(-1));
};
