"use strict";
/* Tables that are whole on the page: sorting by heads, a filter of rows; in all tables the choice of columns. */
(() => {
  const { kept, keep } = window.kafkalike;
  const MANY = 12;

  const text = (cell) => cell.textContent.trim();

  function content(cell) {
    const exact = cell.querySelector("data[value], time[datetime]");
    if (!exact) return text(cell).replace(/\u202f/g, "");
    return exact.dateTime ?? exact.value;
  }

  function compare(a, b) {
    const numbers = [Number(a), Number(b)];
    if (a !== "" && b !== "" && !numbers.some(Number.isNaN)) return numbers[0] - numbers[1];
    return a.localeCompare(b, undefined, { numeric: true });
  }

  const body = (table) => table.tBodies[0];
  const rows = (table) => [...body(table).rows].filter((row) => row.cells.length > 1);

  function sort(table, column, direction) {
    const sorted = rows(table).sort((a, b) => direction * compare(content(a.cells[column]), content(b.cells[column])));
    if (sorted.some((row, at) => body(table).rows[at] !== row)) body(table).append(...sorted);
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      if (at === column) head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    table.dataset.sorted = `${column}:${direction}`;
  }

  function sortable(table) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (head.querySelector("a, button") || text(head) === "") return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const numeric = head.classList.contains("n");
        const [known, direction] = (table.dataset.sorted ?? "").split(":");
        sort(table, column, known === String(column) ? -Number(direction) : numeric ? -1 : 1);
      });
    });
  }

  function filtered(table) {
    const wanted = (table.dataset.filter ?? "").toLowerCase();
    for (const row of rows(table)) row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
  }

  const toolsOf = (table) => {
    const box = table.closest(".scroll");
    if (box.previousElementSibling?.classList.contains("tools") && box.previousElementSibling.dataset.own) return box.previousElementSibling;
    const tools = document.createElement("div");
    tools.className = "tools";
    tools.dataset.own = "true";
    box.before(tools);
    return tools;
  };

  function filterable(table) {
    const label = document.createElement("label");
    const field = document.createElement("input");
    label.append("Filter rows ", field);
    field.type = "search";
    field.value = table.dataset.filter ?? "";
    field.addEventListener("input", () => { table.dataset.filter = field.value; filtered(table); });
    toolsOf(table).append(label);
  }

  // --- columns -----------------------------------------------------------------------------------
  const place = (table) => `columns:${table.dataset.grid}`;
  const hiddenOf = (table) => { try { return new Set(JSON.parse(kept(place(table)) ?? "[]")); } catch { return new Set(); } };
  const nameOf = (head) => head.dataset.column ?? text(head);

  function columns(table) {
    const gone = hiddenOf(table);
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, at) => {
      const away = gone.has(nameOf(head));
      for (const row of table.rows) if (row.cells.length === heads.length && row.cells[at]) row.cells[at].hidden = away;
    });
  }

  function boxes(table) {
    return [...table.tHead.rows[0].cells].slice(1).map((cell) => {
      const label = document.createElement("label"), box = document.createElement("input"), name = nameOf(cell);
      box.type = "checkbox";
      box.checked = !hiddenOf(table).has(name);
      box.addEventListener("change", () => {
        const gone = hiddenOf(table);
        if (box.checked) gone.delete(name); else gone.add(name);
        keep(place(table), JSON.stringify([...gone]));
        columns(table);
      });
      label.append(box, name);
      return label;
    });
  }

  function choosable(table) {
    const menu = document.createElement("details"), head = document.createElement("summary"), list = document.createElement("div");
    menu.className = "columns-menu";
    head.className = "button";
    head.textContent = "Columns";
    menu.append(head, list);
    menu.addEventListener("toggle", () => list.replaceChildren(...(menu.open ? boxes(table) : [])));
    menu.addEventListener("keydown", (event) => { if (event.key === "Escape") { menu.open = false; head.focus(); } });
    document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
    toolsOf(table).append(menu);
  }

  function prepare() {
    for (const table of document.querySelectorAll("main table:not([data-plain])")) {
      if (!table.tHead || !table.tBodies.length || !table.closest(".scroll")) continue;
      if (!table.dataset.ready) {
        table.dataset.ready = "true";
        const whole = !table.tHead.querySelector("a") && !table.querySelector("#tail");
        table.dataset.whole = String(whole);
        if (whole && rows(table).length > MANY) filterable(table);
        if (table.dataset.grid) choosable(table);
      }
      if (table.dataset.whole === "true" && rows(table).length > 1) {
        sortable(table);
        if (table.dataset.sorted) sort(table, ...table.dataset.sorted.split(":").map(Number));
        filtered(table);
      }
      if (table.dataset.grid) columns(table);
    }
  }

  // A refreshed part keeps what was chosen in it.
  window.Idiomorph && Object.assign(Idiomorph.defaults.callbacks, {
    beforeNodeMorphed: (old) => !(old instanceof Element && old.matches(".plot, .tools[data-own], table[data-whole='true'] > thead")),
    beforeNodeRemoved: (old) => !(old instanceof Element && (old.matches(".tools[data-own]") || old.closest(".plot"))),
    beforeAttributeUpdated: (name, node, change) => !(
      (change === "remove" && ["data-sorted", "data-filter", "data-ready", "data-whole"].includes(name)) ||
      (name === "open" && node.localName === "details")
    ),
  });

  prepare();
  document.addEventListener("kafkalike:changed", prepare);
})();
