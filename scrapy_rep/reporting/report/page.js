"use strict";
// All rows are on the page without this. It sorts and filters them, saves them as CSV and JSON, and
// copies URLs.

const LIMIT = 200; // so many rows of a table are shown at first, as page.css says, too
// Kinds of columns that are neither sorted nor filtered. Those of the kind "none" aren't saved, either.
const PLAIN = new Set(["value", "none"]);
const collator = new Intl.Collator("en", { numeric: true });

const textOf = (cell) => cell.textContent.trim();

// Sorts origins as by_domain() in record.py does: shop.a.example and www.a.example stand together, 127.0.0.11
// before 127.0.0.100.
function byDomain(origin) {
  const [, scheme, host, port] = /^(?:(.*?):\/\/)?(.*?)(?::(\d*))?$/s.exec(origin);
  const labels = host.split(".");
  if (!/^\d+$/.test(labels.at(-1))) labels.reverse();
  return [...labels, port ?? "", scheme ?? ""].join("\0").replace(/\d+/g, (digits) => digits.padStart(8, "0"));
}

const compareValues = (a, b) => (a < b ? -1 : Number(a > b));

function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// Returns the number in a cell. An empty cell says nothing (NaN) in a column of numbers, and 0 in a column of
// counts.
function numberOf(cell, kind) {
  const text = cell.dataset.v ?? cell.textContent.replaceAll(",", "");
  return kind === "count" && text.trim() === "" ? 0 : parseFloat(text);
}

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Returns the test that the text of a filter describes: "503" is met by 503, ">0" and "<=2.5" compare. Null if
// the text describes none.
function condition(text) {
  const [, sign, digits] = /^\s*([<>]?=?)\s*(\d[\d,]*\.?\d*)\s*%?\s*$/.exec(text) ?? [];
  if (digits === undefined) return null;
  const wanted = parseFloat(digits.replaceAll(",", ""));
  return {
    "<": (value) => value < wanted,
    "<=": (value) => value <= wanted,
    ">": (value) => value > wanted,
    ">=": (value) => value >= wanted,
  }[sign] ?? ((value) => value === wanted);
}

const isNumeric = (kind) => kind === "number" || kind === "count";

// Returns the test that a row has to pass because of a filter's field; null if the filter demands nothing.
function demand(field, kind, column) {
  const wanted = field.value.trim().toLowerCase();
  const test = isNumeric(kind) ? condition(wanted) : null;
  field.setAttribute("aria-invalid", String(isNumeric(kind) && wanted !== "" && !test));
  if (wanted === "") return null;
  if (isNumeric(kind)) return test && ((row) => test(numberOf(row.cells[column], kind)));
  if (kind === "choice") return (row) => textOf(row.cells[column]).toLowerCase() === wanted;
  return (row) => textOf(row.cells[column]).toLowerCase().includes(wanted);
}

class Table {
  constructor(element) {
    this.element = element;
    this.body = element.tBodies[element.tBodies.length - 1];
    this.heads = Array.from(element.tHead.rows[0].cells);
    this.names = this.heads.map(textOf);
    this.fields = [];
    for (const head of this.heads) if (!PLAIN.has(head.dataset.kind)) this.addSort(head);
    if (this.body.rows.length > 5 && !PLAIN.has(this.kind(0))) this.addFilters();
    this.addTools();
    this.filter();
  }

  kind(column) {
    return this.heads[column].dataset.kind;
  }

  addSort(head) {
    const button = make("button", { type: "button" }, ...head.childNodes);
    button.addEventListener("click", () => this.sort(head));
    head.append(button);
  }

  sort(head) {
    const column = head.cellIndex;
    const numeric = isNumeric(this.kind(column));
    // People want to see the largest numbers first.
    const [first, second] = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
    const order = head.getAttribute("aria-sort") === first ? second : first;
    for (const other of this.heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const isOrigin = this.kind(column) === "origin";
    const key = (row) => {
      const value = this.value(row.cells[column], column);
      if (isOrigin) return byDomain(value);
      return numeric ? (value ?? -Infinity) : value;
    };
    const compare = numeric || isOrigin ? compareValues : collator.compare;
    const sign = order === "ascending" ? 1 : -1;
    const rows = Array.from(this.body.rows, (row) => [key(row), row]);
    rows.sort(([a], [b]) => sign * compare(a, b));
    this.body.append(...rows.map(([, row]) => row));
    this.showOrder();
  }

  showOrder() {
    const sorted = this.heads.find((head) => head.hasAttribute("aria-sort"));
    if (!sorted) {
      this.order.textContent = this.element.dataset.order ?? "";
      return;
    }
    const [first, last] = isNumeric(sorted.dataset.kind) ? ["smallest", "largest"] : ["A", "Z"];
    const begin = sorted.getAttribute("aria-sort") === "ascending" ? first : last;
    this.order.textContent = `by ${textOf(sorted)}, ${begin} first`;
  }

  addFilters() {
    const row = make("tr", { className: "filters" });
    this.heads.forEach((head, column) => {
      const cell = make("td");
      row.append(cell);
      if (PLAIN.has(this.kind(column))) return;
      const field = this.kind(column) === "choice" ? this.choice(column) : make("input", { type: "search" });
      if (isNumeric(this.kind(column))) field.placeholder = "> 0";
      field.dataset.kind = this.kind(column);
      field.setAttribute("aria-label", `Filter: ${this.names[column]}`);
      field.addEventListener("input", () => this.filter());
      this.fields[column] = field;
      cell.append(field);
    });
    this.element.tHead.append(row);
  }

  choice(column) {
    const values = new Set(Array.from(this.body.rows, (row) => textOf(row.cells[column])));
    const options = [...values].filter(Boolean).sort(collator.compare);
    return make("select", {}, new Option("all", ""), ...options.map((text) => new Option(text)));
  }

  addTools() {
    this.count = make("output");
    this.order = make("span", { className: "order" });
    this.more = make("button", { type: "button" });
    this.more.addEventListener("click", () => this.filter((this.all = !this.all)));
    const csv = make("button", { type: "button", onclick: () => this.save("csv", asCsv) }, "CSV");
    const json = make("button", { type: "button", onclick: () => this.save("json", asJson) }, "JSON");
    this.element.parentElement.before(make("div", { className: "tools" }, this.count, this.order, this.more, csv, json));
    this.showOrder();
  }

  filter() {
    const demands = this.fields.map((field, column) => demand(field, this.kind(column), column));
    const active = demands.filter(Boolean);
    let shown = 0;
    for (const row of this.body.rows) {
      row.hidden = !active.every((test) => test(row));
      if (!row.hidden) shown += 1;
    }
    const total = this.body.rows.length;
    const short = active.length === 0 && !this.all && total > LIMIT;
    this.element.classList.toggle("short", short);
    this.more.hidden = total <= LIMIT || active.length > 0;
    this.more.textContent = short ? `Show all ${total.toLocaleString("en")}` : `Show the first ${LIMIT}`;
    const [part, whole] = [short ? LIMIT : shown, total].map((n) => n.toLocaleString("en"));
    const rows = total === 1 ? "row" : "rows";
    this.count.textContent = part === whole ? `${whole} ${rows}` : `${part} of ${whole} ${rows}`;
  }

  // Saves all rows that the filters leave, also those that aren't shown yet.
  save(extension, write) {
    const rows = Array.from(this.body.rows).filter((row) => !row.hidden);
    const cells = rows.map((row) => this.names.map((_, column) => this.value(row.cells[column], column)));
    const columns = this.names.map((_, column) => column).filter((column) => this.kind(column) !== "none");
    const text = write(columns.map((at) => this.names[at]), cells.map((row) => columns.map((at) => row[at])));
    save(`${this.element.id.replace("-table", "")}.${extension}`, text);
  }

  value(cell, column) {
    const kind = this.kind(column);
    if (!isNumeric(kind)) return textOf(cell);
    const number = numberOf(cell, kind);
    return Number.isNaN(number) ? null : number;
  }
}

function asJson(names, rows) {
  const objects = rows.map((row) => Object.fromEntries(row.map((value, at) => [names[at], value])));
  return JSON.stringify(objects, null, 1) + "\n";
}

function asCsv(names, rows) {
  const field = (value) => {
    // Spreadsheets run what begins like a formula, and a site may have written it.
    const text = typeof value === "string" ? value.replace(/^(?=[=+\-@\t\r])/, "'") : String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names, ...rows].map((row) => row.map(field).join(",") + "\r\n").join("");
}

// Filters the table to which a link leads: the link's data-filter is put into each field that has it as a choice.
function follow(link, tables) {
  const table = tables.find((one) => one.element.id === `${link.hash.slice(1)}-table`);
  if (!table) return;
  for (const field of table.fields) {
    if (field) field.value = field.dataset.kind === "choice" && [...field.options].some((one) => one.value === link.dataset.filter) ? link.dataset.filter : "";
  }
  table.filter();
}

// Adds buttons that copy and save the list of URLs to crawl again.
function addList(list) {
  const button = (text, onclick) => make("button", { type: "button", onclick }, text);
  const copy = button("Copy", async () => {
    list.closest("details").open = true;
    const selection = getSelection();
    selection.selectAllChildren(list);
    // Browsers keep the clipboard from pages that they don't trust. Then the URLs are only selected.
    const isCopied = await (navigator.clipboard?.writeText(list.textContent) ?? Promise.reject()).then(
      () => true,
      () => document.execCommand("copy"),
    );
    copy.textContent = isCopied ? "Copied" : "Selected";
  });
  const download = button("Download", () => save("given-up.txt", list.textContent));
  list.closest("details").before(make("div", { className: "tools" }, make("output"), copy, download));
}

document.addEventListener("DOMContentLoaded", () => {
  const list = document.getElementById("given-up-urls");
  if (list) addList(list);
  const tables = Array.from(document.querySelectorAll(".scroll > table"), (element) => new Table(element));
  for (const link of document.querySelectorAll("a[data-filter]")) {
    link.addEventListener("click", () => follow(link, tables));
  }
});
