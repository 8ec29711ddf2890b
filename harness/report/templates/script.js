"use strict";
// The page is readable without this script. It copies commands, filters and sorts tables, and reads the marks of plots.
// They are kept in the address after "~": #section~f=words&s=table.column.direction&t=name:value,name:value
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const make = (tag, fields) => Object.assign(document.createElement(tag), fields);

for (const code of all("code.command")) {
  const button = make("button", { type: "button", textContent: "Copy" });
  button.setAttribute("aria-label", `Copy ${code.textContent}`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
  });
  code.after(button);
}

// A plot is one tab stop; arrow keys select its marks.
for (const chart of all("svg[role=img]")) {
  const marks = all("title", chart).map((title) => title.parentNode);
  if (!marks.length) continue;
  const said = make("p", { className: "said quiet" });
  said.setAttribute("role", "status");
  chart.after(said);
  chart.setAttribute("tabindex", "0");
  chart.setAttribute("aria-label", `${chart.getAttribute("aria-label")}. Arrow keys read its ${marks.length} marks.`);
  let at = -1;
  const go = (to) => {
    marks[at]?.classList.remove("on");
    at = to;
    marks[at]?.classList.add("on");
    said.textContent = marks[at]?.querySelector("title").textContent ?? "";
  };
  chart.addEventListener("keydown", (event) => {
    const last = marks.length - 1;
    const to = { ArrowDown: Math.min(at + 1, last), ArrowRight: Math.min(at + 1, last), ArrowUp: Math.max(at - 1, 0), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last, Escape: -1 }[event.key];
    if (to === undefined) return;
    go(to);
    event.preventDefault();
  });
  chart.addEventListener("blur", () => go(-1));
  marks.forEach((mark, number) => mark.addEventListener("pointerenter", () => go(number)));
}

const state = { f: "", s: "", t: "" };
const save = () => {
  const target = decodeURIComponent(location.hash.slice(1).split("~")[0]);
  const said = Object.entries(state).filter(([, value]) => value).map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
  const hash = said ? `#${target}~${said}` : target ? `#${target}` : location.pathname + location.search;
  try { history.replaceState(null, "", hash); } catch { /* some browsers forbid it for files */ }
};

// Figures sort by value in any unit, all other cells as text.
const scales = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
const value = (cell) => {
  const text = cell?.textContent.trim() ?? "";
  const found = /^(?:◆ )?(-?[0-9][0-9,]*(?:[.][0-9]+)?(?:e[+-]?[0-9]+)?)\s*([^\s\d(]*)/.exec(text);
  if (!found) return text === "–" ? null : text.toLowerCase();
  const unit = found[2];
  return Number(found[1].replaceAll(",", "")) * (scales[unit] ?? (/(B|OP)[/]s$/.test(unit) ? scales[unit[0]] ?? 1 : 1));
};
const compare = (a, b) => a === b ? 0 : a === null ? 1 : b === null ? -1 : typeof a === typeof b ? (a < b ? -1 : 1) : typeof a === "number" ? -1 : 1;
const tables = all("table").filter((table) => table.tHead?.rows.length === 1 && table.tBodies.length === 1 && table.tBodies[0].rows.length > 2 && !table.querySelector("[rowspan],[colspan]"));
const sort = (table, column, direction) => {
  for (const head of all("th[aria-sort]", table.tHead)) head.removeAttribute("aria-sort");
  const head = table.tHead.rows[0].cells[column];
  if (!head) return;
  head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  const rows = [...table.tBodies[0].rows].map((row) => [value(row.cells[column]), row]);
  rows.sort(([a], [b]) => a === null || b === null ? compare(a, b) : direction * compare(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
};
tables.forEach((table, number) => {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = make("button", { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      sort(table, column, direction);
      state.s = `${number}.${column}.${direction}`;
      save();
    });
  });
});

// Columns with data-facet have a list of their values. Columns of one name share it.
const cellOf = (row, column) => row.cells[column].textContent.trim();
const facets = new Map();
for (const head of all("th[data-facet]")) {
  const name = head.dataset.facet, table = head.closest("table"), column = head.cellIndex;
  if (!facets.has(name)) facets.set(name, { places: [], select: make("select") });
  facets.get(name).places.push([table, column]);
}
for (const [name, { places, select }] of facets) {
  const values = new Set(places.flatMap(([table, column]) => [...table.tBodies[0].rows].map((row) => cellOf(row, column))));
  select.append(new Option(`all (${values.size})`, ""), ...[...values].sort().map((each) => new Option(each, each)));
  select.addEventListener("change", () => {
    state.t = [...facets].filter(([, each]) => each.select.value).map(([key, each]) => `${key}:${each.select.value}`).join(",");
    filter(state.f);
    save();
  });
  select.setAttribute("aria-label", name); // the label has the values, too
  facets.get(name).label = make("label", { textContent: `${name} ` });
  facets.get(name).label.append(select);
}
const faceted = (row) => ![...facets.values()].some(({ places, select }) => select.value && places.some(([table, column]) => table === row.closest("table") && cellOf(row, column) !== select.value));

// The filter keeps the rows and folds that contain every word.
const parts = all("details.part");
let units = null;
const filter = (text) => {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  units ??= all("main table:not(.heat)").filter((table) => !table.closest(".facts")).flatMap((table) => {
    const bodies = table.tBodies.length > 1 ? [...table.tBodies] : [...(table.tBodies[0]?.rows ?? [])];
    const around = table.closest(".kernel")?.querySelector("summary").textContent ?? "";
    return bodies.map((body) => [body, `${around} ${body.textContent}`.toLowerCase()]);
  });
  let shown = 0;
  for (const [body, has] of units) {
    body.hidden = !words.every((word) => has.includes(word)) || !faceted(body);
    shown += !body.hidden;
  }
  for (const fold of all("details.kernel")) fold.hidden = words.length > 0 && !fold.querySelector("tbody > tr:not([hidden])");
  const closed = parts.filter((part) => !part.open && part.querySelector("table:not(.heat) tbody > tr:not([hidden])")).length;
  count.textContent = words.length || state.t ? `${shown.toLocaleString("en")} of ${units.length.toLocaleString("en")} rows${closed ? `, also in ${closed} closed sections` : ""}` : "";
};
const box = make("input", { type: "search", id: "filter", placeholder: "avx512 M=1", spellcheck: false, autocomplete: "off" });
const count = make("output", { htmlFor: "filter" });
const tools = make("p", { className: "tools" });
tools.append(make("label", { htmlFor: "filter", textContent: "Filter the tables" }), box, count);
for (const { label, select } of facets.values()) if (select.options.length > 2) tools.append(label);
document.querySelector("header").append(tools);
if (parts.length) {
  const button = make("button", { type: "button", textContent: "Open all sections" });
  button.addEventListener("click", () => {
    const open = parts.some((part) => !part.open);
    for (const part of parts) part.open = open;
    button.textContent = open ? "Close all sections" : "Open all sections";
  });
  tools.append(button);
}
let waiting = 0;
box.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => { state.f = box.value.trim(); filter(state.f); save(); }, 120);
});

// A link into a fold opens it, for browsers that do not open it themselves.
const show = (id) => {
  const target = id && document.getElementById(id);
  for (let fold = target && target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  target?.scrollIntoView();
};
const load = () => {
  const [target, said] = location.hash.slice(1).split("~");
  if (said !== undefined) {
    const found = new URLSearchParams(said);
    Object.assign(state, { f: found.get("f") ?? "", s: found.get("s") ?? "", t: found.get("t") ?? "" });
    box.value = state.f;
    for (const [name, { select }] of facets) select.value = state.t.split(",").find((each) => each.startsWith(`${name}:`))?.slice(name.length + 1) ?? "";
    filter(state.f);
    const [table, column, direction] = state.s.split(".").map(Number);
    if (state.s && tables[table] && (direction === 1 || direction === -1)) sort(tables[table], column, direction);
  } else if (state.f || state.s || state.t) save();
  try { show(decodeURIComponent(target)); } catch { /* not an id of this page */ }
};
addEventListener("hashchange", load);
load();

// Print open sections with their folds. Closed sections and the Runs of many kernels would fill 70 pages.
let opened = [];
addEventListener("beforeprint", () => {
  opened = all("details:not([open], .part, .many, .many details)");
  for (const fold of opened) fold.open = true;
});
addEventListener("afterprint", () => {
  for (const fold of opened) fold.open = false;
});
