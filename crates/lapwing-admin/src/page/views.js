// How figures are shown: numbers as text, elements without HTML, stage bars, tables, waterfalls, curves. It keeps no state of the traffic.
"use strict";

const STAGES = ["ingress", "validation", "cache", "hydration", "preprocessing", "queue", "forward", "postprocessing", "downstream", "egress", "upstream", "unattributed"];
const NS_UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

const three = (number) => (number >= 100 ? number.toFixed(0) : number >= 10 ? number.toFixed(1) : number.toFixed(2));

// 1234567 ns as "1.23 ms".
function time(ns) {
  if (ns === null || ns === undefined || !isFinite(ns)) return "–";
  if (ns === 0) return "0";
  const [size, unit] = NS_UNITS.find(([size]) => ns >= size) || [1e-3, "ps"];
  return `${three(ns / size)} ${unit}`;
}

const count = (number) => number.toLocaleString("en-US");
const percent = (share) => (share === null || share === undefined ? "–" : `${share >= 0.1 || share === 0 ? (100 * share).toFixed(0) : (100 * share).toFixed(1)} %`);

// An element with attributes and children. Text stays text: nothing is read as HTML.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// The bar of a series: the width of a stage is its share of the time of all answered requests.
function stageBar(stages) {
  const parts = STAGES.filter((name) => stages[name]);
  const said = parts.map((name) => `${name} ${percent(stages[name].share)}`).join(", ");
  const bar = make("span", { class: "bar", role: "img", "aria-label": said || "no answered requests", title: said });
  for (const name of parts) {
    const part = make("i", { class: `s-${name}` });
    part.style.width = `${100 * stages[name].share}%`;
    bar.append(part);
  }
  return bar;
}

function shareBar(share, kind) {
  const bar = make("span", { class: "bar" });
  const part = make("i", { class: kind });
  part.style.width = `${100 * Math.min(1, share)}%`;
  bar.append(part);
  return bar;
}

function table(head, rows) {
  const line = (kind, cells) => make("tr", {}, ...cells.map((cell) => (cell instanceof Node ? make(kind, {}, cell) : make(kind, {}, String(cell)))));
  return make("table", {}, make("thead", {}, line("th", head)), make("tbody", {}, ...rows.map((row) => line("td", row))));
}

const replace = (id, ...children) => document.getElementById(id).replaceChildren(...children);

// The source of most requests.
function mainSource(sources) {
  const [first] = Object.entries(sources).sort((a, b) => b[1] - a[1]);
  return first ? first[0] : "–";
}

function stagesTable(series) {
  const rows = [];
  const of = (name, stage, kind) => [name, shareBar(stage.share, kind), percent(stage.share), time(stage.p50_ns), time(stage.p99_ns), mainSource(stage.sources)];
  for (const name of STAGES) {
    if (!series.stages[name]) continue;
    rows.push(of(name, series.stages[name], `s-${name}`));
    if (name === "forward") {
      for (const [phase, stage] of Object.entries(series.phases)) rows.push(of(`– ${phase}`, stage, "s-forward"));
    }
  }
  // it is no part of the total of answered requests
  if (series.cached) rows.push(["answered again", count(series.cached.count), "", time(series.cached.p50_ns), time(series.cached.p99_ns), "cache"]);
  return table(["stage", "share", "", "p50", "p99", "source"], rows);
}

// What is inferred of a server that reports nothing, apart from what is reported.
function inferredOf({ inferred }) {
  if (!inferred) return [];
  if (!inferred.fitted) return [make("p", { class: "none" }, `Nothing inferred: ${inferred.refused.sentence}. ${inferred.refused.help}`)];
  const stages = [["forward", inferred.fitted.forward], ["queue", inferred.fitted.queue]].filter(([, of]) => of);
  const rows = stages.map(([name, { mean_ns, p50_ns, p99_ns }]) => [name, `${time(mean_ns.value)} (${time(mean_ns.low)} to ${time(mean_ns.high)})`, time(p50_ns.value), time(p99_ns.value)]);
  return [make("h3", {}, "Inferred, not reported"), table(["stage", "mean (95 %)", "p50", "p99"], rows)];
}

function classesTable(series) {
  const most = Math.max(1, ...series.classes.map((of) => of.count));
  const rows = series.classes.map((of) => [
    of.from === of.to ? `${count(of.from)} ${of.unit}` : `${count(of.from)}–${count(of.to)} ${of.unit}`,
    shareBar(of.count / most, "s-queue"), count(of.count), time(of.p50_ns), time(of.p99_ns),
  ]);
  return table(["work", "requests", "", "p50", "p99"], rows);
}

function unitsTable(series) {
  const rows = Object.entries(series.per_unit).map(([stage, of]) => [stage, of.unit, count(of.units), time(of.mean_ps / 1e3), time(of.p50_ps / 1e3), time(of.p99_ps / 1e3)]);
  return table(["stage", "per", "units", "mean", "p50", "p99"], rows);
}

function generationTable(generation) {
  const names = { first_token: "first token", per_output_token: "per output token", inter_token: "between chunks", server_first_token: "first token, by the server", server_per_output_token: "per output token, by the server" };
  const rows = Object.entries(names).filter(([key]) => generation[key]).map(([key, name]) => [name, count(generation[key].count), time(generation[key].p50_ns), time(generation[key].p99_ns)]);
  const speed = generation.output_tokens_per_s;
  if (speed) rows.push(["tokens/s: median, slowest tenth", "", three(speed.p50), three(speed.p10)]);
  return table(["", "n", "p50", "p99"], rows);
}

// Whatever members an object has, as a table of names and values; members that are objects are left out.
function plainTable(object) {
  const shown = (key, value) => (typeof value === "number" && key.endsWith("_ns") ? time(value) : typeof value === "number" ? count(Number(value.toPrecision(4))) : String(value));
  return table(["", ""], Object.entries(object).filter(([, value]) => value !== null && typeof value !== "object").map(([key, value]) => [key, shown(key, value)]));
}

// Whether requests wait in front of the upstreams.
function dispatchState({ is_on, is_rechecking, waiting }) {
  if (!is_on) return "It observes: requests pass as they come.";
  return is_rechecking ? "It is on; for a moment all pass, to see how many requests upstreams work on at once." : `It is on; ${count(waiting)} waiting.`;
}

// What became of second requests for those that take long.
function hedgeTable({ hedge, predicted_ns }) {
  const { is_on, hedged_ns, won, lost, failed, observed, withheld } = hedge;
  const asked = is_on ? [["answered first", won], ["too late", lost], ["failed too", failed]] : [["would be sent", observed]];
  const rows = [...asked, ...Object.entries(withheld).map(([why, n]) => [`not sent: ${why}`, n])].map(([name, n]) => [name, count(n)]);
  return table(["second requests", ""], is_on ? [...rows, ["share of the time", percent(predicted_ns ? hedged_ns / predicted_ns : 0)]] : rows);
}

function waitingTable({ classes }) {
  const wait = (of) => (of.mean_wait_ns === null ? "" : time(of.mean_wait_ns));
  const row = (of) => [of.name, count(of.waiting), time(of.waiting_work_ns), count(of.sent), count(of.queued), wait(of), count(of.refused), count(of.expired)];
  return table(["class", "waiting", "work", "sent at once", "waited", "mean wait", "refused", "in vain"], classes.map(row));
}

// The slots of each upstream, or why nothing waits in front of it.
function slotsTable({ upstreams }) {
  const why = (of) => make("span", { class: "why" }, `nothing waits: ${of.reason}`);
  const bad = (of) => (of.is_ejected ? "left alone" : of.is_stalled ? "stands still" : of.has_just_failed ? "has just failed" : "");
  const running = (of) => (bad(of) ? make("span", { class: "bad" }, bad(of)) : count(of.running));
  return table(["upstream", "slots", "running", "speed"], upstreams.map((of) => [of.upstream, of.slots ?? why(of), running(of), three(of.speed)]));
}

// What requests took as they came, and what they would take through the queue.
function replayTable({ requests, covered_ns, without, with: queued }) {
  const names = { mean_ns: "mean", p99_ns: "p99", small_p99_ns: "p99 of the small half", large_p99_ns: "p99 of the largest twentieth" };
  const rows = Object.entries(names).map(([key, name]) => {
    const change = without[key] ? Math.round(100 * (queued[key] / without[key] - 1)) : 0;
    return [name, time(without[key]), time(queued[key]), `${change > 0 ? "+" : ""}${change} %`];
  });
  return table([`${count(requests)} requests of ${time(covered_ns)}`, "as they came", "queued", ""], rows);
}

// Whether answers are given again, and what that brings.
function cacheState({ mode, requests, hit_rate, saved_ns, entries, bytes, max_bytes }) {
  if (mode !== "on") return "It observes: the upstream is asked in all cases.";
  const kept = `${count(entries)} answers in ${memory(bytes)} of ${memory(max_bytes)}`;
  return hit_rate === null ? `It is on; ${kept}.` : `It is on: ${percent(hit_rate)} of ${count(requests)} requests answered, ${time(saved_ns)} of the upstream saved; ${kept}.`;
}

// 67108864 bytes as "64 MiB".
function memory(bytes) {
  const [size, unit] = bytes >= 2 ** 30 ? [2 ** 30, "GiB"] : [2 ** 20, "MiB"];
  return `${Number.isInteger(bytes / size) ? bytes / size : three(bytes / size)} ${unit}`;
}

// What became of requests, and why others stayed out.
function answersTable({ results, refused }) {
  const some = (counts, prefix) => Object.entries(counts).filter(([, n]) => n > 0).map(([name, n]) => [`${prefix}${name.replaceAll("_", " ")}`, count(n)]);
  return table(["requests", ""], [...some(results, ""), ...some(refused, "stayed out: ")]);
}

// Whether the upstream gives the same answer to the same question.
function trustTable({ series }) {
  const state = (of) => (of.state === "refused" ? make("span", { class: "bad" }, of.state) : of.needed ? `${of.state}, ${count(of.needed)} more` : of.state);
  const row = (of) => [of.model ? `${of.route} · ${of.model}` : of.route, state(of), `${count(of.same)} of ${count(of.compared)}`, `${percent(of.different_share.low)} to ${percent(of.different_share.high)}`];
  return table(["route", "", "same answer", "differ (95 %)"], series.map(row));
}

// What caches would bring: a row for each size, a column for each time to live.
function ghostTable({ cells, enough }) {
  const sizes = [...new Set(cells.map((of) => of.max_bytes))], times = [...new Set(cells.map((of) => of.ttl_s))];
  const at = (size, ttl) => cells.find((of) => of.max_bytes === size && of.ttl_s === ttl);
  const cell = (of) => make(enough && of.max_bytes === enough.max_bytes && of.ttl_s === enough.ttl_s ? "strong" : "span", { title: `${time(of.saved_ns_an_hour)} an hour` }, percent(of.hit_rate));
  const shown = (ttl) => (ttl >= 86400 ? `${ttl / 86400} d` : ttl >= 3600 ? `${ttl / 3600} h` : ttl >= 60 ? `${ttl / 60} min` : `${ttl} s`);
  return table(["", ...times.map(shown)], sizes.map((size) => [memory(size), ...times.map((ttl) => cell(at(size, ttl)))]));
}

const STATUSES = { healthy: "healthy", failing: "failing", over_budget: "over budget", slow_tail: "slow tail (no budget)", not_enough_evidence: "not enough evidence" };
const MEASURES = { seconds: (value) => time(1e9 * value), ratio: (value) => (value >= 0 && value <= 1 ? percent(value) : `${three(value)}×`) };

// A measured quantity with its unit.
function quantity(value, unit) {
  if (value === null) return "–";
  return MEASURES[unit] ? MEASURES[unit](value) : `${count(Number(value.toPrecision(3)))} ${unit}`;
}

// 95 % interval of a share of `count` in `of` (Wilson), as the diagnosis has it.
function shareInterval(count, of) {
  if (!of) return [0, 1];
  const z = 1.96, share = count / of, middle = share + (z * z) / (2 * of), whole = 1 + (z * z) / of;
  const half = z * Math.sqrt((share * (1 - share)) / of + (z * z) / (4 * of * of));
  return [Math.max(0, (middle - half) / whole), Math.min(1, (middle + half) / whole)];
}

const NOT_OF_SERVER = ["ok", "cancelled", "client_error", "rejected"];

// Whether so many requests fail at the server's side or are shed that the series counts as failing.
function isFailing(series) {
  const failed = Object.entries(series.outcomes).filter(([name]) => !NOT_OF_SERVER.includes(name)).reduce((sum, [, n]) => sum + n, 0);
  return failed > 0 && (failed >= 3 || failed === series.count) && shareInterval(failed, series.count)[0] > 0.01;
}

// How the requests of a series ended, the most first after those that ended well.
function outcomesTable(series) {
  const rows = Object.entries(series.outcomes).filter(([, n]) => n > 0).sort(([a, n], [b, m]) => (b === "ok") - (a === "ok") || m - n).map(([name, n]) => {
    const [low, high] = shareInterval(n, series.count);
    return [name.replaceAll("_", " "), shareBar(n / series.count, name === "ok" ? "s-forward" : "s-queue"), count(n), percent(n / series.count), `${percent(low)} to ${percent(high)}`];
  });
  return table(["outcome", "", "requests", "share", "95 %"], rows);
}

// What does not arrive, with the one change that brings it.
const missingOf = ({ sentence, change }) => make("p", { class: "missing" }, make("strong", {}, "missing"), ` ${sentence}. `, make("span", { class: "said" }, `${change}.`));

// What would help, with what turns it on.
const leverOf = ({ sentence, change }) => make("p", { class: "lever" }, `${sentence}: `, make("span", { class: "said" }, `${change}.`));

const bound = (verdict) => `${verdict.bound.replaceAll("_", "-")}-bound`;

// The diagnosis of a route in a line; its evidence and fixes come with a click.
function diagnosisOf(route, own, isOpen) {
  const [first] = route.verdicts;
  const { failures } = route.outcomes ?? { failures: [] };
  const trouble = failures.find((failure) => failure.is_trouble);
  const name = make("span", { class: "name" }, route.route, route.model ? ` · ${route.model}` : "");
  const said = trouble ? trouble.sentence : first ? `${bound(first)}: ${first.sentence}` : route.summary || `${count(route.requests)} requests, p99 ${time(route.p99_ns)}`;
  const line = make("summary", {}, make("strong", { class: `status ${route.status}` }, STATUSES[route.status] ?? route.status), " ", name, " ", make("span", { class: "said" }, said));
  const box = make("details", { class: "diagnosis", "data-key": own, open: isOpen ? "" : null }, line);
  for (const failure of failures) {
    box.append(make("p", {}, make("strong", {}, failure.kind.replaceAll("_", " ")), ` ${failure.sentence}.`));
    if (failure.is_trouble) box.append(make("ol", {}, ...failure.fixes.map((fix) => make("li", {}, fix))));
  }
  if (first && route.summary) box.append(make("p", {}, route.summary));
  for (const verdict of route.verdicts) {
    const [low, high] = verdict.share_interval;
    box.append(make("h3", {}, `${bound(verdict)}${verdict.cause === verdict.bound ? "" : `, ${verdict.cause.replaceAll("_", " ")}`}: ${percent(verdict.share)} (${percent(low)} to ${percent(high)}), confidence ${percent(verdict.confidence)}${verdict.doubt ? `, because ${verdict.doubt}` : ""}`));
    if (verdict !== first) box.append(make("p", {}, verdict.sentence));
    if (verdict.fixes.length) box.append(make("ol", {}, ...verdict.fixes.map((fix) => make("li", {}, fix))));
    const rows = verdict.evidence.map((one) => [one.what, quantity(one.value, one.unit), one.threshold === null ? "" : quantity(one.threshold, one.unit)]);
    if (rows.length) box.append(make("div", { class: "table" }, table(["evidence", "measured", "held against"], rows)));
  }
  for (const { sentence, fixes } of route.notices ?? []) box.append(make("p", {}, `Also: ${sentence}. ${fixes[0] ?? ""}`));
  for (const { what, how } of route.missing) box.append(make("p", { class: "none" }, `Not known: ${what}. ${how}`));
  if (route.tail.length) {
    const rows = route.tail.map((of) => [of.stage, time(of.body_ns), time(of.tail_ns), percent(Math.max(0, of.share_of_excess))]);
    box.append(make("div", { class: "table" }, table(["stage", "around the median", "in the tail", "share of the excess"], rows)));
  }
  if (route.exchanges.length) {
    const link = (trace) => make("a", { href: `exchanges?trace_id=${encodeURIComponent(trace)}` }, trace);
    box.append(make("p", {}, "Requests that show it: ", ...route.exchanges.slice(0, 5).flatMap((trace, place) => (place ? [", ", link(trace)] : [link(trace)]))));
  }
  return box;
}

// Whose answer it was given, if not the upstream's for this very request.
const servedBy = ({ served_by }) => (served_by === "upstream" ? "" : ` · served by ${served_by}`);

function waterfall(exchange) {
  const box = make("div", { class: "waterfall" });
  const status = exchange.status === null ? exchange.outcome : `${exchange.status} ${exchange.outcome}`;
  box.append(make("p", {}, make("strong", {}, time(exchange.total_ns)), ` · ${status}${servedBy(exchange)} · ${exchange.started_at.slice(0, 23)}Z · trace ${exchange.trace_id}`));
  for (const span of exchange.spans) {
    const mark = make("i", { class: `s-${span.stage}` });
    mark.style.left = `${(100 * span.start_ns) / exchange.total_ns}%`;
    mark.style.width = `${(100 * (span.end_ns - span.start_ns)) / exchange.total_ns}%`;
    const name = make("span", { class: "name", title: `${span.name}: ${span.stage}, ${span.source}` }, span.name, " ", make("span", { class: "source" }, span.source));
    box.append(make("div", { class: "span" }, name, make("span", { class: "where" }, mark), make("span", { class: "long" }, time(span.end_ns - span.start_ns))));
  }
  return box;
}

// A curve for each name in `lines` over the seconds in `times`; drawn anew when the set of names changes.
class Curves {
  constructor(id) {
    this.place = document.getElementById(id);
    this.names = "";
    this.plot = null;
    new ResizeObserver(() => this.plot && this.plot.setSize(this.size())).observe(this.place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.names = ""; });
  }

  size() {
    return { width: Math.max(200, this.place.clientWidth), height: 180 };
  }

  draw(times, lines) {
    const names = lines.map((line) => line.name).join("\n");
    const data = [times, ...lines.map((line) => line.values)];
    if (this.plot && names === this.names) {
      this.plot.setData(data);
      return;
    }
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    if (this.plot) this.plot.destroy();
    this.names = names;
    const series = lines.map((line) => ({ label: line.name, stroke: colour(line.colour), width: 1.5, points: { show: false }, value: (_, ns) => time(ns) }));
    const options = { ...this.size(), series: [{}, ...series], axes: [axis, { ...axis, size: 70, values: (_, marks) => marks.map(time) }], legend: { live: false }, cursor: { drag: { x: false } } };
    this.plot = new uPlot(options, data, this.place);
  }
}
