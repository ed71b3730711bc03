// The page: figures once a second, the tree when it has changed; or both from a report.

const FIRST = 12; // requests that are shown at first

let figures = null, tree = null, showAll = false;
const shown = {}; // what each part was last drawn from

// part draws only if what it is drawn from has changed, so that nothing that somebody reads or marks is replaced.
function part(name, from, draw) {
  const key = JSON.stringify(from);
  if (shown[name] === key) return;
  shown[name] = key;
  draw();
}

function tile(name, value, under, extra) {
  return el("div", { class: "tile", "data-tile": name }, el("h3", {}, name), el("p", { class: "value" }, value), extra, el("p", { class: "under" }, under));
}

function meter(part, whole) {
  const bar = svg("rect", { class: "bar", x: 0, y: 0, width: Math.min(100, share(part, whole)), height: 4 });
  return svg("svg", { class: "meter", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: "rail", x: 0, y: 0, width: 100, height: 4 }), bar);
}

// reusedFrom says how many tokens were reused, and who had them.
function reusedFrom({ reused, asked, fromStore }) {
  const from = !reused ? "" : fromStore === reused ? ", all from the store" : !fromStore ? ", all still in the server" : ": " + number(fromStore) + " from the store, " + number(reused - fromStore) + " still in the server";
  return number(reused) + " of " + number(asked) + from;
}

// outcomes are how requests ended: the numbers add up to all of them.
function outcomes(front) {
  const all = [[front.hits, "from the store"], [front.slotted, "still in a slot"], [front.misses, "not found"], [front.passed, "passed through"], [front.cancelled, "cancelled"]];
  return all.filter(([n]) => n).map(([n, how]) => number(n) + " " + how).join(", ");
}

function drawTiles() {
  const { store, front, report } = figures;
  const all = [];
  if (front) {
    all.push(tile("Tokens reused", percent(front.reused, front.asked), front.asked ? reusedFrom(front) : "no prompt yet"));
    all.push(tile("Requests", number(front.total), front.total ? outcomes(front) : "none yet"));
    const rate = front.rates.length === 1 ? "computing takes 1 s for " + number(Math.round(front.rates[0].perSecond)) + " tokens" : front.rates.length ? "by the measured rates" : "no rate is measured yet";
    all.push(tile("Time saved", span(front.everSince ? front.savedEver : front.saved), !front.everSince ? rate : front.everSince >= front.since ? "since this start; " + rate : "since " + day(front.everSince) + ", " + span(front.saved) + " of it since this start"));
  } else if (store && !report) {
    const found = store.matches ? number(store.hits) + " of " + (store.matches === 1 ? "1 prompt" : number(store.matches) + " prompts") : "nothing was looked up yet";
    all.push(tile("Prompts found", percent(store.hits, store.matches), found));
    all.push(tile("Tokens reused", percent(store.tokensReused, store.tokensAsked), store.tokensAsked ? number(store.tokensReused) + " of " + number(store.tokensAsked) : "no prompt yet"));
  }
  if (store) {
    if (store.budget) all.push(tile("On disk", size(store.diskBytes), "of " + size(store.budget) + ", " + size(store.liveBytes) + " in use", meter(store.diskBytes, store.budget)));
    else all.push(tile("On disk", size(store.diskBytes), size(store.liveBytes) + " in use"));
    if (report) {
      all.push(tile("Blocks", large(store.blocks), count(store.records, "record")));
    } else {
      const age = store.evictedAge ? "; half of them had not been used for up to " + rough(store.evictedAge) : "";
      all.push(tile("Made room", number(store.evicted), "blocks removed" + age + "; " + number(store.blocks) + " are stored"));
    }
  }
  if (report && tree) {
    const sum = (of) => tree.models.reduce((n, m) => n + m[of], 0);
    all.push(tile("Tokens", large(sum("tokens")), count(tree.models.length, "model")));
    all.push(tile("Found", times(sum("hits")), "by prompts that began like what is stored"));
    all.push(tile("Last used", ago(tree.used), tree.scopes ? count(tree.scopes, "scope") + " with prompts of their own" : "everything is shared"));
  }
  if (front && front.slots) {
    const dots = el("p", { class: "dots", "aria-hidden": "true" });
    for (let i = 0; i < Math.min(front.slots, 24); i++) dots.append(el("i", { class: i < front.busy ? "busy" : "" }));
    all.push(tile("Slots busy", front.busy + " of " + front.slots, (front.server || "") + (front.restarts ? ", " + count(front.restarts, "restart") : ""), dots));
  }
  by("tiles").dataset.n = all.length;
  by("tiles").replaceChildren(...all);
  by("since").hidden = !front || !front.since;
  if (front) by("since").textContent = "Counted since this start, " + when(front.since) + (front.everSince && front.everSince < front.since ? "; the time saved since " + day(front.everSince) + "." : ".");
}

function drawNotes() {
  const notes = figures.notes.slice();
  if (tree && tree.damaged) notes.push({ level: "warn", text: count(tree.damaged, "record") + " known to be damaged. kvdump verify says where." });
  by("notes").replaceChildren(...notes.map((n) => el("p", { class: "note " + (["fine", "warn", "bad"].includes(n.level) ? n.level : "warn") }, n.text)));
}

const OUTCOMES = { hit: "from the store", slot: "the server still had it in a slot", miss: "not found", pass: "passed through to the server as it is", cancelled: "the client left" };

// asker is who asked for what: a program if it is known, the path, and the model if there are several.
function asker(q, models) {
  const [name, ...under] = [q.client, q.endpoint, models > 1 && q.model].filter(Boolean);
  return el("td", { class: "who" }, el("span", { class: "name" }, name || q.model), under.length ? el("span", { class: "under" }, under.join(" · ")) : "");
}

function drawRequests() {
  const recent = (figures.front && figures.front.recent) || [];
  by("requests").hidden = !figures.front;
  const models = new Set(recent.map((q) => q.model)).size;
  const rows = (showAll ? recent : recent.slice(0, FIRST)).map((q) => {
    const text = q.known ? number(q.reused) + " of " + number(q.asked) : q.asked ? "not known, of " + number(q.asked) : "–";
    const reused = el("td", { class: "n reused" + (q.known ? "" : " no") }, el("span", {}, text), q.known ? meter(q.reused, q.asked) : "");
    return el("tr", { class: q.firstByte ? "" : "silent" },
      el("td", { class: "when" }, when(q.at)), asker(q, models),
      el("td", { class: "how" }, el("span", { class: "pill " + q.outcome, title: OUTCOMES[q.outcome] || "" }, q.outcome)),
      reused, el("td", { class: "n first" }, q.firstByte ? span(q.firstByte) : "–"),
      el("td", { class: "reason" }, q.why, q.parted && el("p", { class: "parted" }, q.parted), q.advice && el("p", { class: "advice" }, q.advice)));
  });
  by("recent").tHead.hidden = !rows.length;
  if (!rows.length) rows.push(el("tr", {}, el("td", { colspan: 6, class: "soft" }, "No request yet.")));
  by("recent").tBodies[0].replaceChildren(...rows);
  by("all").hidden = recent.length <= FIRST;
  by("all").textContent = showAll ? "Show fewer" : "Show all " + recent.length;
}

function drawWhy() {
  const { store, front } = figures;
  const kinds = front ? front.kinds : (store && store.reasons) || [];
  by("why").hidden = !kinds.length;
  const most = Math.max(1, ...kinds.map((k) => k.n));
  by("reasons").replaceChildren(...kinds.slice(0, 10).map((k) => el("li", {},
    el("span", {}, k.outcome ? el("span", { class: "pill " + k.outcome }, k.outcome) : "", k.words), el("span", { class: "n" }, number(k.n)), meter(k.n, most))));
}

function drawTimes() {
  const { times: all, store, front } = figures;
  by("times").hidden = !all.length;
  by("durations").hidden = !all.length;
  by("durations").tBodies[0].replaceChildren(...all.map((t) => el("tr", {},
    el("td", {}, t.what), el("td", { class: "n" }, large(t.n)), el("td", { class: "n few" }, span(t.mean)), el("td", { class: "n" }, span(t.p50)), el("td", { class: "n" }, span(t.p95)))));
  const facts = [];
  if (front) {
    if (front.unused) facts.push(["Restored, and computed again", count(front.unused, "token")]);
    if (front.unknown) facts.push(["Prompts of cancelled or failed requests", count(front.unknown, "token")]);
    for (const r of front.rates.slice(0, 6)) facts.push(["Computing, " + r.model, number(Math.round(r.perSecond)) + " tokens a second"]);
  }
  if (store && store.sessions) facts.push(["Conversations kept", number(store.sessions)]);
  by("facts").replaceChildren(...facts.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
}

function drawFigures() {
  if (!figures) return;
  part("title", figures.title, () => {
    by("title").textContent = figures.title;
    document.title = figures.title ? "Dormouse: " + figures.title : "Dormouse";
  });
  part("notes", [figures.notes, tree && tree.damaged], drawNotes);
  part("tiles", [figures, tree && figures.report], drawTiles);
  part("charts", [figures.front, document.body.clientWidth], () => drawCharts(figures.front));
  part("requests", [figures.front && figures.front.recent, showAll], drawRequests);
  part("why", [figures.front && figures.front.kinds, figures.store && figures.store.reasons], drawWhy);
  part("times", [figures.times, figures.store, figures.front && [figures.front.unused, figures.front.unknown, figures.front.rates]], drawTimes);
}

function state(how, text) {
  by("state").className = how;
  by("state-text").textContent = text;
}

// connect listens. A browser tries again by itself unless it was refused.
function connect() {
  const events = new EventSource("events");
  events.addEventListener("open", () => state("live", "live"));
  events.addEventListener("error", () => {
    state("lost", "not connected");
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  });
  events.addEventListener("figures", (e) => {
    figures = JSON.parse(e.data);
    drawFigures();
  });
  events.addEventListener("tree", (e) => {
    tree = JSON.parse(e.data);
    showTree(tree);
    drawFigures();
  });
}

function start() {
  by("tree").addEventListener("keydown", steer);
  by("all").addEventListener("click", () => {
    showAll = !showAll;
    drawFigures();
  });
  let width = 0;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    drawFigures();
    drawTree();
  }).observe(document.body);
  const data = by("data");
  if (data) { // a report
    const all = JSON.parse(data.textContent);
    figures = all.figures;
    tree = all.tree;
    clock = () => figures.at;
    state("still", "report of " + new Date(figures.at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }));
    drawFigures();
    showTree(tree);
    return;
  }
  connect();
  setInterval(() => tree && showTree(tree), 60000); // colours and times grow older
}

start();
