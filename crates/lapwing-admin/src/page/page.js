// The live page: reads the stream of snapshots, remembers the last minutes of the chosen series, and shows them.
"use strict";

const REMEMBERED = 300; // looks, a second each
const SLOW_MS = 5000; // how often the slowest requests and the reports are asked for
const MOST_SERIES = 500; // that are remembered; as many as are shown
const REPORTS = { downstreams: "the server calls nothing", split: "nothing is split", trials: "nothing is tried", shadow: "there is no shadow target" }; // how each begins if there is none
const MOST_DIAGNOSED = 8; // routes whose diagnosis is shown: those that lost most time

const page = {
  token: null,
  latest: null, // the last snapshot of the chosen window
  chosen: null, // the key of the chosen series
  rows: new Map(), // by key: the row's elements
  history: new Map(), // by key: { times, looks }, where a look has only the numbers that are drawn
  stop: null, // ends the streams
  isUndiagnosed: false, // whether the diagnosis is off
};
const at = (id) => document.getElementById(id);
const key = (series) => JSON.stringify([series.route, series.model, series.upstream]);
const curves = {};

function headers() {
  return page.token ? { authorization: `Bearer ${page.token}` } : {};
}

async function ask(path, accept) {
  const response = await fetch(path, { headers: { ...headers(), accept }, cache: "no-store", signal: page.stop.signal });
  if (!response.ok) throw Object.assign(new Error(`${path}: ${response.status}`), { status: response.status });
  return response;
}

// Reads the server-sent events of one stream until it ends, and gives the data of each to `each`.
async function listen(window, each) {
  const response = await ask(`stats/stream?window=${encodeURIComponent(window)}`, "text/event-stream");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the stream ended");
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data) each(JSON.parse(data));
    }
  }
}

function say(text, isLost = false) {
  at("state").textContent = text;
  at("state").classList.toggle("lost", isLost);
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Keeps the streams open, anew each time the window or the token changes, or they break.
async function run() {
  for (;;) {
    const stop = new AbortController();
    page.stop = stop;
    try {
      await Promise.race([listen(at("window").value, show), listen("10s", remember), slowly(stop.signal)]);
    } catch (error) {
      if (error.status === 401 || error.status === 403) await askForToken(page.token !== null);
      else if (!stop.signal.aborted) {
        say(error.status === 503 ? "too many pages are open; trying again" : "no connection; trying again", true);
        await sleep(1000);
      }
    }
    stop.abort();
  }
}

function askForToken(isWrong) {
  say("asks for its token", true);
  at("token").hidden = false;
  at("token-fault").textContent = isWrong ? "That is not the token." : "";
  at("token-text").focus();
  return new Promise((done) => {
    at("token").onsubmit = (event) => {
      event.preventDefault();
      page.token = at("token-text").value.trim();
      at("token-text").value = "";
      at("token").hidden = true;
      done();
    };
  });
}

// What is asked for every few seconds: the slowest requests of the chosen series, the diagnosis, and the reports.
async function slowly(signal) {
  while (!signal.aborted) {
    const series = find(page.chosen);
    if (series) {
      const query = new URLSearchParams({ order: "slowest", limit: 5, route: series.route, model: series.model ?? "" });
      const { exchanges } = await (await ask(`exchanges?${query}`, "application/json")).json();
      if (page.chosen === key(series)) {
        replace("waterfalls", ...(exchanges.length ? exchanges.map(waterfall) : [make("p", { class: "none" }, "None are kept.")]));
      }
    }
    await diagnose();
    showDispatch(await (await ask("dispatch?format=json", "application/json")).json());
    showCache(await (await ask("cache?format=json", "application/json")).json());
    for (const [name, none] of Object.entries(REPORTS)) {
      const report = await (await ask(name, "text/plain")).text();
      at(`${name}-panel`).hidden = report.startsWith(none);
      at(name).textContent = report;
    }
    for (let waited = 0; waited < SLOW_MS && !page.hurry && !signal.aborted; waited += 100) await sleep(100);
    page.hurry = false;
  }
}

// The queue in front of the upstreams; `null` while it is off.
function showDispatch(queue) {
  at("dispatch-panel").hidden = !queue;
  if (!queue) return;
  at("dispatch-state").textContent = dispatchState(queue);
  replace("dispatch-classes", waitingTable(queue));
  replace("dispatch-upstreams", slotsTable(queue));
  panel("hedge", queue.hedge, () => hedgeTable(queue));
  panel("replay", queue.replayed, () => replayTable(queue.replayed));
}

// Answers that are given again; `null` while that is off.
function showCache(cache) {
  at("cache-panel").hidden = !cache;
  if (!cache) return;
  at("cache-state").textContent = cacheState(cache);
  replace("cache-answers", answersTable(cache));
  replace("cache-trust", trustTable(cache));
  panel("ghost", cache.ghost, () => ghostTable(cache.ghost));
  at("ghost-enough").textContent = cache.ghost?.enough?.sentence ?? "";
}

// The first routes of the diagnosis. What is open stays open.
async function diagnose() {
  if (page.isUndiagnosed) return;
  let routes, missing, levers;
  try {
    ({ routes, missing = [], levers = [] } = await (await ask("diagnosis?format=json", "application/json")).json());
  } catch (error) {
    if (error.status !== 404) throw error;
    page.isUndiagnosed = true;
    return;
  }
  const open = new Set([...at("diagnosis").children].filter((one) => one.open).map((one) => one.dataset.key));
  at("diagnosis-panel").hidden = !routes.length && !missing.length && !levers.length;
  replace("diagnosis", ...missing.map(missingOf), ...levers.map(leverOf), ...routes.slice(0, MOST_DIAGNOSED).map((route) => diagnosisOf(route, key(route), open.has(key(route)))));
}

const find = (wanted) => page.latest && page.latest.series.find((series) => key(series) === wanted);

const QUANTILES = { p50: "--validation", p90: "--queue", p99: "--forward" };
const PER_UNIT = ["preprocessing", "forward", "upstream"];

// The numbers of a look that are drawn: nanoseconds by quantile, and by stage per unit of work; null where there are none.
function numbers(series) {
  const look = {};
  for (const quantile of Object.keys(QUANTILES)) look[quantile] = series.total.count ? series.total[`${quantile}_ns`] : null;
  for (const stage of PER_UNIT) look[stage] = series.per_unit[stage] ? series.per_unit[stage].mean_ps / 1e3 : null;
  return look;
}

// Keeps the percentiles of a look at 10 s.
function remember(stats) {
  const now = Date.now() / 1000;
  for (const series of stats.series.slice(0, MOST_SERIES)) {
    const own = key(series);
    if (!page.history.has(own)) page.history.set(own, { times: [], looks: [] });
    const history = page.history.get(own);
    history.times.push(now);
    history.looks.push(numbers(series));
    if (history.times.length > REMEMBERED) {
      history.times.shift();
      history.looks.shift();
    }
  }
  for (const [own, history] of page.history) {
    if (history.times.at(-1) < now - REMEMBERED) page.history.delete(own);
  }
  drawCurves();
}

function show(stats) {
  page.latest = stats;
  say(`live · ${count(stats.series.reduce((sum, series) => sum + series.count, 0))} requests in ${time(stats.covered_ns)}`);
  showRoutes();
  showDetail();
  showProfiler(stats.profiler);
}

// --- the list

function makeRow(series) {
  const row = make("button", { class: "route", role: "option", type: "button", "aria-selected": "false" });
  const figures = ["rate", "bad", "p50", "p99"].map((name) => [name, make("span", { class: "figure" })]);
  const name = make("span", { class: "name" }, series.route, make("span", { class: "model" }, series.model ?? "no model"));
  const bar = make("span", { class: "bar" });
  row.append(name, ...figures.map(([, element]) => element), bar);
  row.addEventListener("click", () => choose(key(series)));
  return { row, bar, ...Object.fromEntries(figures) };
}

function figure(element, text, what) {
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  element.replaceChildren(text, make("small", {}, what));
}

function showRoutes() {
  const wanted = at("filter").value.toLowerCase();
  const all = page.latest.series.filter((series) => `${series.route} ${series.model ?? ""}`.toLowerCase().includes(wanted));
  const shown = all.sort((a, b) => isFailing(b) - isFailing(a) || b.total.count * b.total.mean_ns - a.total.count * a.total.mean_ns).slice(0, MOST_SERIES);
  const keys = new Set(shown.map(key));
  for (const [own, of] of page.rows) {
    if (!keys.has(own)) {
      of.row.remove();
      page.rows.delete(own);
    }
  }
  const list = at("routes");
  shown.forEach((series, place) => {
    const own = key(series);
    if (!page.rows.has(own)) page.rows.set(own, makeRow(series));
    const of = page.rows.get(own);
    figure(of.rate, three(series.count / (page.latest.covered_ns / 1e9)), "requests/s");
    figure(of.bad, percent(series.count ? series.errors / series.count : 0), "errors");
    of.bad.classList.toggle("bad", series.errors > 0);
    figure(of.p50, time(series.total.count ? series.total.p50_ns : null), "p50");
    figure(of.p99, time(series.total.count ? series.total.p99_ns : null), "p99");
    const bar = stageBar(series.stages);
    if (bar.title !== of.bar.title) {
      of.bar.replaceWith(bar);
      of.bar = bar;
    }
    if (list.children[place] !== of.row) list.insertBefore(of.row, list.children[place] ?? null);
  });
  at("empty").hidden = shown.length > 0;
  if (!find(page.chosen) && shown.length) choose(key(shown[0]));
}

function choose(own) {
  page.chosen = own;
  page.hurry = true;
  for (const [other, of] of page.rows) of.row.setAttribute("aria-selected", String(other === own));
  replace("waterfalls");
  showDetail();
  drawCurves();
}

at("routes").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const rows = [...at("routes").children];
  const to = rows[rows.indexOf(document.activeElement) + step];
  if (!step || !to) return;
  event.preventDefault();
  to.focus();
});

// --- the chosen series

function showDetail() {
  const series = find(page.chosen);
  at("detail").hidden = !series;
  if (!series) return;
  for (const [own, of] of page.rows) of.row.setAttribute("aria-selected", String(own === page.chosen));
  at("detail-title").textContent = `${series.route}${series.model === null ? "" : ` · ${series.model}`} · ${series.server ?? series.upstream}`;
  replace("outcomes", outcomesTable(series));
  replace("stages", stagesTable(series), ...inferredOf(series));
  panel("classes", series.classes.length, () => classesTable(series));
  panel("units", Object.keys(series.per_unit).length, () => unitsTable(series));
  panel("generation", series.generation, () => generationTable(series.generation));
  panel("debt", series.computational_debt, () => plainTable(series.computational_debt));
}

function panel(name, isThere, content) {
  at(`${name}-panel`).hidden = !isThere;
  if (isThere) replace(name, content());
}

function drawCurves() {
  const history = page.history.get(page.chosen);
  if (!history || at("detail").hidden) return;
  const of = (name, colour) => ({ name, colour, values: history.looks.map((look) => look[name]) });
  curves.total ??= new Curves("over-time");
  curves.total.draw(history.times, Object.entries(QUANTILES).map(([name, colour]) => of(name, colour)));
  const stages = PER_UNIT.filter((stage) => history.looks.at(-1)[stage] !== null);
  if (stages.length && !at("units-panel").hidden) {
    curves.units ??= new Curves("units-over-time");
    curves.units.draw(history.times, stages.map((stage) => of(stage, `--${stage}`)));
  }
}

// --- Lapwing itself

const PROFILER = {
  uptime_ns: "up", in_flight: "in flight", series: "series", dropped: "not profiled", queue_depth: "waiting to be counted", pending: "waiting for spans",
  values_clipped: "values clipped", clipped: "reports clipped", reports_malformed: "reports not readable", series_overflowed: "counted as other",
};
const TROUBLE = ["dropped", "values_clipped", "reports_malformed"];

function showProfiler(profiler) {
  const entries = Object.entries(PROFILER).filter(([name]) => profiler[name] !== undefined).map(([name, what]) => {
    const most = profiler[`${name === "queue_depth" ? "queue" : name}_max`];
    const shown = name.endsWith("_ns") ? time(profiler[name]) : count(profiler[name]) + (most ? ` of ${count(most)}` : "");
    return make("div", {}, make("dt", {}, what), make("dd", { class: TROUBLE.includes(name) && profiler[name] > 0 ? "bad" : null, "data-name": name }, shown));
  });
  replace("profiler", ...entries);
}

replace("legend", ...STAGES.map((name) => make("li", {}, make("span", { class: `swatch s-${name}` }), name)));
at("filter").addEventListener("input", () => page.latest && showRoutes());
at("window").addEventListener("change", () => page.stop.abort());
run();
