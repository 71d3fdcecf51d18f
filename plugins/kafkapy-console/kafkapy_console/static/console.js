// What pages cannot do without a script: theme, menu, keys, charts, streams of records. No page needs it to be read.
"use strict";
(() => {
  const find = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const number = new Intl.NumberFormat("en-US");

  // --- theme, menu ---------------------------------------------------------------------------------------------------

  const dark = () => document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  find("#theme")?.addEventListener("click", () => {
    const theme = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    document.cookie = `theme=${theme}; path=/; max-age=31536000; samesite=lax`;
    document.dispatchEvent(new Event("theme"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("theme")));

  const burger = find(".burger");
  burger?.addEventListener("click", () => {
    const open = find("#nav").classList.toggle("open");
    burger.setAttribute("aria-expanded", String(open));
  });

  document.addEventListener("click", event => {
    for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });

  // --- forms ---------------------------------------------------------------------------------------------------------

  // The button of a deletion works once the name is typed.
  for (const input of all("input[data-confirm]")) {
    const button = find("button.danger", input.form);
    const check = () => { button.disabled = input.value !== input.dataset.confirm; };
    input.addEventListener("input", check);
    check();
  }
  for (const form of all('form[method="post"]')) {
    form.addEventListener("submit", event => {
      if (form.dataset.sent) event.preventDefault();
      form.dataset.sent = "1";
      setTimeout(() => { delete form.dataset.sent; }, 3000);
    });
  }

  // A part that renews itself waits while somebody reads or uses it.
  document.addEventListener("htmx:beforeRequest", event => {
    const part = event.target;
    if (!/^every/.test(part.getAttribute("hx-trigger") ?? "")) return;
    if (document.hidden || find("details[open]", part) || part.contains(document.activeElement)) event.preventDefault();
  });

  // --- keys ----------------------------------------------------------------------------------------------------------

  let waiting = false;
  const root = document.body.dataset.root;
  const places = { c: "/", t: "/topics", g: "/groups", x: "/transactions" };
  document.addEventListener("keydown", event => {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key === "Escape") {
      for (const menu of all("details.menu[open]")) { menu.open = false; find("summary", menu)?.focus(); }
      stop?.("Stopped.");
      return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (waiting && places[event.key]) { location.href = root + places[event.key]; return; }
    waiting = event.key === "g";
    if (waiting) setTimeout(() => { waiting = false; }, 1000);
    if (event.key === "/") {
      const field = find("main input[type=search]");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    }
    if (event.key === "?") find("#keys")?.showModal();
  });

  // --- streams of records --------------------------------------------------------------------------------------------

  const MOST_ROWS = 1000;
  let stop = null;
  const section = find("#stream");
  if (section) {
    const live = section.dataset.live === "1";
    const rows = find("#rows"), told = find("#told"), bar = find(".progress progress", section), button = find("#stop");
    const source = new EventSource(section.dataset.stream);
    let last = "", rate = "";
    stop = text => {
      source.close();
      stop = null;
      told.textContent = `${text} ${last}`.trim();
      button.textContent = "Again";
      button.onclick = () => location.reload();
    };
    button.addEventListener("click", () => stop?.("Stopped."));
    const seconds = value => value < 120 ? `${value} s` : `${Math.round(value / 60)} min`;
    source.addEventListener("record", event => {
      // The server escaped all contents; the policy of the page lets no script of a record run.
      const table = document.createElement("table");
      table.innerHTML = `<tbody>${event.data}</tbody>`;
      const row = find("tr", table);
      if (!row) return;
      row.classList.add("new");
      if (live) rows.prepend(row); else rows.append(row);
      while (rows.childElementCount > MOST_ROWS) rows.lastElementChild.remove();
    });
    source.addEventListener("progress", event => {
      const at = JSON.parse(event.data);
      if (live) {
        last = `${number.format(at.hits)} records in ${seconds(at.seconds)}`
          + (at.read > at.hits ? `, ${number.format(at.read)} read` : "")
          + (at.left_out ? `; ${number.format(at.left_out)} came too fast to show` : "") + ".";
      } else {
        const share = at.total ? Math.min(100, 100 * at.done / at.total) : 100;
        bar.value = share;
        const left = at.done && at.total > at.done ? Math.ceil(at.seconds * (at.total - at.done) / at.done) : 0;
        const failed = at.failed ? ` The filter had no result for ${number.format(at.failed)} records (${at.failure}).` : "";
        rate = `${number.format(at.rate)} records/s.${failed}`;
        last = `${Math.floor(share)} %: ${number.format(at.hits)} hits in ${number.format(at.read)} records, `
          + `${left ? `about ${seconds(left)} left, ` : ""}${rate}`;
      }
      told.textContent = last;
    });
    source.addEventListener("end", event => {
      // The sentence has the numbers of the last progress.
      if (!live) last = rate;
      stop?.(event.data);
    });
    source.addEventListener("failure", event => {
      const banner = document.createElement("div");
      banner.className = "banner bad";
      banner.setAttribute("role", "alert");
      banner.textContent = event.data;
      find("#trouble").replaceChildren(banner);
      stop?.("Ended.");
    });
    source.addEventListener("error", () => {
      // A search that begins again by itself would show its hits twice.
      stop?.("The connection to the console ended.");
    });
  }

  // --- charts --------------------------------------------------------------------------------------------------------

  const EVERY_MS = 2000, POINTS = 300;
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = value => Math.abs(value) >= 1e9 ? `${+(value / 1e9).toFixed(1)}G` : Math.abs(value) >= 1e6
    ? `${+(value / 1e6).toFixed(1)}M` : Math.abs(value) >= 1e4 ? `${+(value / 1e3).toFixed(1)}k` : number.format(+value.toFixed(1));

  for (const figure of all("[data-chart]")) {
    const plot = find(".plot", figure), output = find("output", figure);
    const kind = figure.dataset.chart, unit = figure.dataset.unit;
    let data = [[], []], chart = null, before = null;
    const make = () => {
      chart?.destroy();
      const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
      chart = new uPlot({
        width: Math.max(200, plot.clientWidth), height: 150, padding: [10, 8, 0, 0],
        cursor: { y: false, drag: { x: false, y: false } }, legend: { show: false },
        // One point alone would have an axis of years.
        scales: { x: { range: (_, low, high) => low === null ? [low, high] : [low, Math.max(high, low + 60)] }, y: { range: (_, low, high) => [0, Math.max(1, (high ?? 0) * 1.15)] } },
        axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map(at => clock.format(1000 * at)) }, { ...axis, size: 56, values: (_, ticks) => ticks.map(short) }],
        series: [{}, { stroke: color("--chart"), width: 2, fill: color("--accent-soft"), points: { show: false } }],
      }, data, plot);
    };
    const poll = async () => {
      if (document.hidden) return;
      try {
        const response = await fetch(figure.dataset.url, { headers: { Accept: "application/json" } });
        if (!response.ok) throw new Error(String(response.status));
        const found = await response.json();
        if (kind === "series") {
          data = [found.times, found.values];
          const value = found.values.at(-1);
          output.textContent = value === undefined ? "–" : `${number.format(value)} ${unit}`;
        } else {
          const total = found.values["messages in"];
          if (total === undefined) { output.textContent = "not known"; return; }
          if (before && found.time > before.time) {
            const rate = Math.max(0, (total - before.total) / (found.time - before.time));
            data = [[...data[0], found.time].slice(-POINTS), [...data[1], rate].slice(-POINTS)];
            output.textContent = `${short(rate)} ${unit}` + (found.away ? ` (${found.away} endpoints are away)` : "");
          }
          before = { time: found.time, total };
        }
        chart?.setData(data);
      } catch {
        output.textContent = "no answer";
        before = null;
      }
    };
    if (!window.uPlot) { output.textContent = ""; continue; }
    make();
    new ResizeObserver(() => chart.setSize({ width: Math.max(200, plot.clientWidth), height: 150 })).observe(plot);
    document.addEventListener("theme", make);
    poll();
    setInterval(poll, kind === "series" ? 5000 : EVERY_MS);
  }
})();
