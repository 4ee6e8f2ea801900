// The page's behaviour. Text from the study only ever goes through textContent.
(() => {
  "use strict";
  const points = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const root = document.documentElement;

  // Light and dark: the system's, unless the button or #light / #dark in the address says otherwise.
  const button = document.querySelector(".theme");
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const nameButton = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  const readHash = () => {
    if (location.hash === "#dark" || location.hash === "#light") root.dataset.theme = location.hash.slice(1);
    nameButton();
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    history.replaceState(null, "", "#" + root.dataset.theme);
    nameButton();
  });
  addEventListener("hashchange", readHash);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameButton);
  readHash();
  button.hidden = false;

  // The card: shown for the point under the pointer or in focus; a click keeps it until Escape or a click elsewhere.
  const card = document.querySelector(".card");
  let pinned = null;
  const fill = (point) => {
    card.replaceChildren();
    const title = document.createElement("h4");
    title.textContent = point.title;
    const list = document.createElement("dl");
    for (const [name, value] of point.rows) {
      const dt = document.createElement("dt");
      const dd = document.createElement("dd");
      dt.textContent = name;
      dd.textContent = value;
      list.append(dt, dd);
    }
    card.append(title, list);
  };
  const rowOf = (element) => document.querySelector(`#measurements tr[data-i="${element.dataset.i}"]`);
  const show = (element) => {
    fill(points[Number(element.dataset.i)]);
    card.hidden = false;
    const at = element.querySelector(".mark").getBoundingClientRect();
    const width = card.offsetWidth, height = card.offsetHeight, gap = 12, edge = 8;
    const { clientWidth: roomX, clientHeight: roomY } = root;
    let left = at.right + gap;
    if (left + width > roomX - edge) left = at.left - gap - width;
    let top = at.top + at.height / 2 - height / 2;
    if (left < edge) {
      left = Math.max(edge, Math.min(roomX - width - edge, at.left - width / 2));
      top = at.bottom + gap + height > roomY - edge ? at.top - gap - height : at.bottom + gap;
    }
    top = Math.max(edge, Math.min(roomY - height - edge, top));
    card.style.transform = `translate(${Math.round(left)}px,${Math.round(top)}px)`;
    all("tr.lit").forEach((row) => row.classList.remove("lit"));
    rowOf(element)?.classList.add("lit");
  };
  const hide = () => {
    card.hidden = true;
    all("tr.lit").forEach((row) => row.classList.remove("lit"));
  };
  const unpin = () => {
    pinned?.classList.remove("pinned");
    pinned = null;
    hide();
  };
  for (const element of all(".point")) {
    element.addEventListener("pointerenter", () => show(element));
    element.addEventListener("pointerleave", () => (pinned ? show(pinned) : hide()));
    element.addEventListener("focus", () => show(element));
    element.addEventListener("blur", () => pinned !== element && hide());
    element.addEventListener("click", (event) => {
      event.stopPropagation();
      unpin();
      pinned = element;
      element.classList.add("pinned");
      show(element);
    });
  }
  document.addEventListener("click", unpin);
  document.addEventListener("keydown", (event) => event.key === "Escape" && unpin());
  addEventListener("scroll", () => pinned ? show(pinned) : hide(), { passive: true });

  // Filters: a point is visible when each of its facets is checked; labels and stems follow their points.
  const form = document.querySelector(".filters");
  const boxes = all("input[data-facet]", form);
  const filter = () => {
    const checked = new Set(boxes.filter((b) => b.checked).map((b) => b.dataset.facet + "\n" + b.value));
    const visible = points.map((p) => Object.entries(p.facets).every(([name, value]) => checked.has(name + "\n" + value)));
    for (const element of all("[data-i]")) element.classList.toggle("off", !visible[Number(element.dataset.i)]);
    for (const element of all("[data-for]")) {
      const count = element.dataset.for.split(" ").filter((i) => visible[Number(i)]).length;
      element.classList.toggle("off", count < (element.classList.contains("stem") ? 2 : 1));
    }
    const count = visible.filter(Boolean).length;
    form.querySelector(".shown").textContent = `${count} of ${points.length} measurements shown`;
    if (pinned?.classList.contains("off")) unpin();
  };
  form.addEventListener("change", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  // Browsers remember checkboxes across a reload.
  addEventListener("pageshow", filter);
  form.hidden = false;
  filter();

  // Sorting: by the number where a cell has one (data-v), else by its text.
  for (const table of all("table")) {
    const heads = all("th", table);
    heads.forEach((head, column) => {
      const sorter = document.createElement("button");
      sorter.type = "button";
      sorter.textContent = head.textContent;
      head.replaceChildren(sorter);
      sorter.addEventListener("click", () => {
        const falling = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        const value = (row) => {
          const cell = row.cells[column];
          return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
        };
        const compare = (a, b) =>
          typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true, sensitivity: "base" });
        const rows = [...table.tBodies[0].rows].sort((a, b) => compare(value(a), value(b)) * (falling ? -1 : 1));
        table.tBodies[0].append(...rows);
      });
    });
  }
})();
