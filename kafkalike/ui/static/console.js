"use strict";
/* Theme, times, menu, live refresh, copying, confirmations and the page of live records. */
(() => {
  const root = document.documentElement;
  const kept = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private windows keep nothing */ } };
  window.kafkalike = { kept, keep };
  root.classList.add("js");
  // Before the page is drawn, so that it does not flash.
  if (kept("theme")) root.dataset.theme = kept("theme");

  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const local = () => kept("zone") === "local";

  // --- times -------------------------------------------------------------------------------------
  const two = (number, width = 2) => String(number).padStart(width, "0");

  function absolute(moment) {
    if (!local()) return moment.toISOString().replace("T", " ").replace("Z", " UTC");
    const day = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
    const clock = `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}.${two(moment.getMilliseconds(), 3)}`;
    return `${day} ${clock}`;
  }

  function relative(moment, now) {
    const seconds = Math.round((now - moment) / 1000), far = Math.abs(seconds);
    if (far < 2) return "now";
    const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
    if (far >= 30 * 86400) return absolute(moment).slice(0, 10);
    const [unit, length] = units.find(([, span]) => far >= span * (span > 1 ? 1.5 : 1)) ?? units[3];
    const text = `${Math.round(far / length)} ${unit}`;
    return seconds < 0 ? `in ${text}` : `${text} ago`;
  }
  window.kafkalike.absolute = absolute;

  function times(part) {
    const now = Date.now();
    for (const one of part.querySelectorAll("time[datetime]")) {
      const moment = new Date(one.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      const text = one.classList.contains("ago") ? relative(moment, now) : absolute(moment);
      if (one.textContent !== text) one.textContent = text;
    }
  }

  // --- live parts --------------------------------------------------------------------------------
  const paused = () => kept("live") === "off";
  let failed = false;

  function showLive() {
    const button = document.getElementById("live");
    button.hidden = document.querySelector("[data-live]") === null;
    button.setAttribute("aria-pressed", String(paused()));
    button.textContent = paused() ? "Resume refresh" : failed ? "Refresh failed, trying again" : "Pause refresh";
    button.classList.toggle("danger", failed && !paused());
  }

  function selecting(part) {
    const selection = getSelection();
    return selection !== null && !selection.isCollapsed && part.contains(selection.anchorNode);
  }

  document.addEventListener("htmx:beforeRequest", (event) => {
    const part = event.detail.elt;
    if (!part.matches("[data-live]")) return;
    const open = part.querySelector("details[open].columns-menu") !== null;
    if (paused() || document.hidden || open || selecting(part)) event.preventDefault();
  });

  // A page whose server or session is gone must not look like a quiet cluster.
  for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(name, (event) => {
      if (!event.detail.elt.matches("[data-live]")) return;
      failed = true;
      showLive();
    });
  }

  let held = null;
  document.addEventListener("htmx:beforeSwap", () => { held = document.activeElement; });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.elt.matches("[data-live]")) failed = false;
    times(document);
    document.dispatchEvent(new Event("kafkalike:changed"));
    showLive();
    if (held && held.isConnected && document.activeElement !== held) held.focus({ preventScroll: true });
    held = null;
  });

  // --- values: bytes in hexadecimal or Base64, and copying -----------------------------------------
  if (kept("bytes")) root.dataset.bytes = kept("bytes");

  function bytesSwitch(button) {
    const show = () => { button.textContent = root.dataset.bytes === "base64" ? "Bytes: Base64" : "Bytes: hex"; };
    button.hidden = document.querySelector(".as-hex") === null;
    button.addEventListener("click", () => {
      root.dataset.bytes = root.dataset.bytes === "base64" ? "hex" : "base64";
      keep("bytes", root.dataset.bytes);
      show();
    });
    show();
  }

  async function copyText(button) {
    const part = document.getElementById(button.dataset.copy);
    const shown = part.querySelector(root.dataset.bytes === "base64" ? ".as-base64" : ".as-hex") ?? part;
    // A dump has positions and characters beside the digits.
    const text = shown.matches("pre.as-hex") ? shown.textContent.replace(/^[0-9a-f]{8} {2}(.{47}).*$/gm, "$1").replace(/\s+/g, "") : shown.textContent;
    try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Not allowed to copy"; }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  // --- the page of live records ------------------------------------------------------------------
  function watch(table) {
    const state = document.getElementById("tail-state"), pause = document.getElementById("pause");
    let stopped = false, count = 0, source = null;
    const say = (text) => { state.textContent = text; };
    const open = () => {
      source = new EventSource(table.dataset.events);
      source.addEventListener("ready", () => say("waiting for records"));
      source.addEventListener("rows", (event) => {
        // The server has escaped what stands in the records.
        table.insertAdjacentHTML("afterbegin", event.data);
        while (table.rows.length > 500) table.deleteRow(-1);
        times(table);
        count += event.data.split("<tr>").length - 1;
        say(`${count} record${count === 1 ? "" : "s"}`);
      });
      source.addEventListener("failed", (event) => { say(event.data); source.close(); });
      source.onerror = () => say("reconnecting …");
    };
    pause.addEventListener("click", () => {
      stopped = !stopped;
      pause.setAttribute("aria-pressed", String(stopped));
      pause.textContent = stopped ? "Resume" : "Pause";
      if (stopped) { source.close(); say("paused"); } else { open(); }
    });
    open();
  }

  // --- the whole page ----------------------------------------------------------------------------
  document.addEventListener("DOMContentLoaded", () => {
    const theme = document.getElementById("theme"), zone = document.getElementById("zone"), menu = document.getElementById("menu");
    const showTheme = () => { theme.textContent = dark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `${dark() ? "Light" : "Dark"} colors`); };
    const showZone = () => { zone.textContent = local() ? "Times: local" : "Times: UTC"; };
    theme.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      keep("theme", root.dataset.theme);
      showTheme();
      document.dispatchEvent(new Event("kafkalike:theme"));
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      showTheme();
      document.dispatchEvent(new Event("kafkalike:theme"));
    });
    zone.addEventListener("click", () => {
      keep("zone", local() ? "utc" : "local");
      showZone();
      times(document);
      document.dispatchEvent(new Event("kafkalike:theme"));
    });
    document.getElementById("live").addEventListener("click", () => {
      keep("live", paused() ? "on" : "off");
      showLive();
    });
    menu.addEventListener("click", () => {
      const open = document.getElementById("side").classList.toggle("open");
      menu.setAttribute("aria-expanded", String(open));
    });
    theme.hidden = zone.hidden = false;
    showTheme();
    showZone();
    showLive();
    times(document);
    setInterval(() => { if (!document.hidden && !paused()) times(document); }, 10_000);
    const table = document.getElementById("tail"), bytes = document.getElementById("bytes");
    if (table) watch(table);
    if (bytes) bytesSwitch(bytes);
    if (navigator.clipboard) for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-confirm]");
    if (button && !window.confirm(button.dataset.confirm)) event.preventDefault();
    const copying = event.target.closest("[data-copy]");
    if (copying) copyText(copying);
  });

  // A copied figure or time is the exact one.
  document.addEventListener("copy", (event) => {
    const selection = getSelection();
    if (!selection || selection.isCollapsed || !event.clipboardData) return;
    const part = document.createElement("div");
    part.append(selection.getRangeAt(0).cloneContents());
    const exact = part.querySelectorAll("data[value], time[datetime]");
    if (exact.length === 0) return;
    for (const one of exact) one.textContent = one.dateTime ?? one.value;
    const texts = document.createTreeWalker(part, NodeFilter.SHOW_TEXT), spaces = [];
    while (texts.nextNode()) if (texts.currentNode.data.trim() === "") spaces.push(texts.currentNode);
    for (const one of spaces) one.data = " ";
    for (const cell of part.querySelectorAll("td, th")) cell.append("\t");
    for (const row of part.querySelectorAll("tr, li, p, div, dd")) row.append("\n");
    event.clipboardData.setData("text/plain", part.textContent.replace(/ *\t */g, "\t").replace(/[ \t]*\n\s*/g, "\n").trim());
    event.preventDefault();
  });
})();
