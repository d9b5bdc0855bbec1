"use strict";
(() => {
  const root = document.documentElement;
  const kept = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private windows keep nothing */ } };
  // Before the page is drawn, so that it does not flash.
  if (kept("theme")) root.dataset.theme = kept("theme");

  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  function watch(table) {
    const state = document.getElementById("tail-state"), pause = document.getElementById("pause");
    let held = false, count = 0, source = null;
    const say = (text) => { state.textContent = text; };
    const open = () => {
      source = new EventSource(table.dataset.events);
      source.addEventListener("ready", () => say("waiting for records"));
      source.addEventListener("rows", (event) => {
        // The server has escaped what stands in the records.
        table.insertAdjacentHTML("afterbegin", event.data);
        while (table.rows.length > 500) table.deleteRow(-1);
        count += event.data.split("<tr>").length - 1;
        say(`${count} records`);
      });
      source.addEventListener("failed", (event) => { say(event.data); source.close(); });
      source.onerror = () => say("reconnecting …");
    };
    pause.addEventListener("click", () => {
      held = !held;
      pause.setAttribute("aria-pressed", String(held));
      pause.textContent = held ? "Resume" : "Pause";
      if (held) { source.close(); say("paused"); } else { open(); }
    });
    open();
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      keep("theme", root.dataset.theme);
    });
    const table = document.getElementById("tail");
    if (table) watch(table);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-confirm]");
    if (button && !window.confirm(button.dataset.confirm)) event.preventDefault();
  });
})();
