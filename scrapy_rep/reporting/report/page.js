"use strict";

const collator = new Intl.Collator("en", { numeric: true });
const status = document.getElementById("status");

function keyOf(cell, kind) {
  const text = cell.dataset.v ?? cell.textContent;
  if (kind !== "number") return text;
  const number = parseFloat(text.replaceAll(",", ""));
  return Number.isNaN(number) ? -Infinity : number;
}

function sortBy(button) {
  const head = button.closest("th");
  const table = head.closest("table");
  const column = head.cellIndex;
  const kind = button.dataset.kind;
  // Of numbers people want to see the largest first.
  const first = kind === "number" ? "descending" : "ascending";
  const second = kind === "number" ? "ascending" : "descending";
  const order = head.getAttribute("aria-sort") === first ? second : first;
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);

  const body = table.tBodies[0];
  const sign = order === "ascending" ? 1 : -1;
  const rows = Array.from(body.rows, (row) => [keyOf(row.cells[column], kind), row]);
  rows.sort(([a], [b]) => sign * (kind === "number" ? (a < b ? -1 : a > b ? 1 : 0) : collator.compare(a, b)));
  body.append(...rows.map(([, row]) => row));
  status.textContent = `${table.caption.textContent}: sorted by ${button.textContent}, ${order}`;
}

for (const button of document.querySelectorAll(".sortable thead button")) {
  button.addEventListener("click", () => sortBy(button));
}

for (const button of document.querySelectorAll("[data-more]")) {
  const table = document.getElementById(button.dataset.more);
  const all = button.textContent;
  button.addEventListener("click", () => {
    const short = table.classList.toggle("short");
    button.setAttribute("aria-expanded", String(!short));
    button.textContent = short ? all : "Show the first 200";
  });
}

for (const input of document.querySelectorAll("[data-filter]")) {
  const table = document.getElementById(input.dataset.filter);
  const more = document.querySelector(`[data-more="${table.id}"]`);
  const none = document.getElementById(`${table.id}-none`);
  input.addEventListener("input", () => {
    const words = input.value.trim().toLowerCase();
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      row.hidden = !row.textContent.toLowerCase().includes(words);
      if (!row.hidden) shown += 1;
    }
    // The first 200 are those of all rows, not of those found.
    table.classList.toggle("short", words === "" && more?.getAttribute("aria-expanded") !== "true");
    none.hidden = shown > 0;
    status.textContent = `${shown} origins shown`;
  });
}
