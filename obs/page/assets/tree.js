// The icicle: each box is a run of tokens; below it is what goes on from it. Its width is its bytes and all theirs.

const ROW = 30;
const SMALL = 14; // pixels: boxes that are narrower are drawn as one
const THIN = 6; // and one that is narrower even so is left out
const AGES = [ // the newest first: minutes, and what the legend says
  [10, "last 10 minutes"], [60, "last hour"], [24 * 60, "last day"], [7 * 24 * 60, "last week"], [Infinity, "longer ago"],
];

let forest = null; // the root node: all that is stored
let zoomed = "all"; // ids, which outlive an update
let picked = "";
const groups = new Map(); // of the small ones below a node, their ids: by the group's id

function age(ms) {
  if (!ms) return "none";
  const m = (clock() - ms) / 60000;
  return "u" + AGES.findIndex(([most]) => m <= most);
}

// plant makes one tree of what the server sends, with parents.
function plant(view) {
  const root = { kind: "all", id: "all", bytes: view.bytes, used: view.used, kids: [], up: null };
  const grow = (of, up) => {
    for (const x of of || []) {
      const n = { ...x, kind: x.more ? "more" : "run", up, model: up.model, kids: [] };
      up.kids.push(n);
      grow(x.kids, n);
    }
  };
  for (const m of view.models) {
    if (!m.bytes) continue;
    const n = { ...m, kind: "model", up: root, kids: [] };
    n.model = n;
    root.kids.push(n);
    grow(m.kids, n);
  }
  return root;
}

// group is several small nodes below one as one.
function group(up, kids) {
  const sum = (of) => kids.reduce((n, k) => n + (k[of] || 0), 0);
  return {
    kind: "group", id: up.id + "~", up, model: up.model || kids[0].model, kids, more: kids.reduce((n, k) => n + (k.more || 1), 0), bytes: sum("bytes"), blocks: sum("blocks"),
    tokens: sum("tokens"), hits: sum("hits"), used: Math.max(...kids.map((k) => k.used)),
  };
}

// spread is what is drawn below a node of a width: its large ones, and its small ones together. The largest come first.
function spread(n, width) {
  const small = n.kids.filter((k) => (width * k.bytes) / n.bytes < SMALL);
  if (n.kind === "group" || small.length < 2) return n.kids;
  const all = group(n, small);
  groups.set(all.id, new Set(small.map((k) => k.id)));
  return [...n.kids.filter((k) => !small.includes(k)), all];
}

function find(id, n = forest) {
  if (!n || n.id === id) return n;
  if (id === n.id + "~" && groups.has(id)) {
    const kids = n.kids.filter((k) => groups.get(id).has(k.id));
    if (kids.length) return group(n, kids);
  }
  for (const k of n.kids) {
    const x = find(id, k);
    if (x) return x;
  }
  return null;
}

const kept = (n) => { // the node that was zoomed to may be gone
  const x = find(n);
  return x || forest;
};

function label(n, width) {
  const long = {
    all: () => ["everything · " + size(n.bytes), "everything", "all"],
    model: () => [n.name + " · " + size(n.bytes), n.name],
    more: () => ["… " + number(n.more) + " more", "…"],
    group: () => [number(n.more) + " small ones", "… " + number(n.more), "…"],
    run: () => {
      const what = count(n.tokens, "token"), used = n.hits ? " · found " + times(n.hits) : "";
      const mine = n.who ? [n.who + " · " + what + used, n.who + " · " + what, n.who] : [];
      return [...mine, what + used, what, number(n.tokens)];
    },
  }[n.kind]();
  const fits = (width - 12) / (n.kind === "model" ? 7.6 : 6.7);
  const text = long.find((t) => t.length <= fits);
  if (text !== undefined) return text;
  return n.kind === "model" && fits > 5 ? n.name.slice(0, fits - 1) + "…" : "";
}

// branches are how many prompts go on from a node.
const branches = (n) => number(n.kids.reduce((sum, k) => sum + (k.more || 1), 0));

function describe(n) {
  const used = "last used " + ago(n.used);
  switch (n.kind) {
    case "all":
      return ["Everything: " + size(n.bytes), "tap a box to look closer"];
    case "model":
      return [n.name + (n.latest ? "" : " (an older version)"), size(n.bytes), count(n.tokens, "token"), "found " + times(n.hits), used];
    case "group":
      return [number(n.more) + " small ones, drawn as one", "tap to look closer", size(n.bytes), count(n.tokens, "token"), "found " + times(n.hits), used];
    case "more":
      return [number(n.more) + " smaller ones, drawn as one", size(n.bytes), count(n.tokens, "token"), "found " + times(n.hits), used];
  }
  const behind = n.bytes - n.own;
  return [
    "Tokens " + number(n.first) + " to " + number(n.first + n.tokens), n.who && "asked for by " + n.who, n.kids.length > 1 && "the same in " + branches(n) + " prompts",
    size(n.own) + (behind ? " and " + size(behind) + " behind it" : ""), n.hits ? "found " + times(n.hits) : "not found yet", used, n.scope ? "private: scope " + n.scope : "shared",
    n.model.name,
  ].filter(Boolean);
}

function pick(n) {
  picked = n.id;
  const [head, ...rest] = describe(n);
  by("pick").replaceChildren(el("b", {}, head), " · " + rest.join(" · "));
  for (const g of by("tree").children) g.classList.toggle("picked", g.dataset.id === n.id);
}

// drawTree draws what is zoomed to over the whole width, what it hangs from above it, and below it what it holds.
function drawTree() {
  const at = by("tree");
  const width = at.parentElement.clientWidth;
  if (!forest || !width) return;
  const focus = kept(zoomed);
  zoomed = focus.id;
  const above = [];
  for (let n = focus.up; n; n = n.up) above.unshift(n);
  const boxes = [];
  let rows = 0;
  const box = (n, x, w, row) => {
    if (w < 1) return;
    rows = Math.max(rows, row + 1);
    const g = svg("g", { class: "box " + n.kind + " " + age(n.used) + (row < above.length ? " above" : "") + (n.scope ? " own" : "") });
    g.dataset.id = n.id;
    g.append(svg("rect", { x: x + 0.5, y: row * ROW + 0.5, width: Math.max(w - 1, 0.5), height: ROW - 2, rx: w > 8 ? 4 : 0 }));
    const text = label(n, w);
    if (text) g.append(svg("text", { x: x + 7, y: row * ROW + 19 }, text));
    g.append(svg("title", {}, describe(n).join("\n")));
    g.addEventListener("pointerenter", (e) => e.pointerType === "mouse" && pick(n));
    g.addEventListener("click", () => {
      zoomed = n.id === zoomed && n.up ? n.up.id : n.id;
      drawTree();
      pick(n);
    });
    boxes.push(g);
  };
  above.forEach((n, row) => box(n, 0, width, row));
  const lay = (n, x, w, row) => {
    box(n, x, w, row);
    let left = x;
    n.drawn = spread(n, w);
    if (n.kind === "group" && n !== focus) return;
    for (const k of n.drawn) {
      const part = (w * k.bytes) / n.bytes;
      if (k.more && part < THIN) break; // it is the last one
      if (part >= 1) lay(k, left, part, row + 1);
      left += part;
    }
  };
  lay(focus, 0, width, above.length);
  at.setAttribute("width", width);
  at.setAttribute("height", rows * ROW);
  at.setAttribute("viewBox", "0 0 " + width + " " + rows * ROW);
  at.replaceChildren(...boxes);
  pick(find(picked) || focus);
}

function steer(e) {
  const n = find(picked) || forest;
  if (!n) return;
  const beside = (by) => {
    const all = n.up ? n.up.drawn || n.up.kids : [n];
    return all[all.findIndex((k) => k.id === n.id) + by];
  };
  const to = {
    ArrowDown: () => (n.drawn || n.kids)[0], ArrowUp: () => n.up, ArrowLeft: () => beside(-1), ArrowRight: () => beside(1), Enter: () => n, Escape: () => n.up || n,
  }[e.key];
  if (!to) return;
  e.preventDefault();
  const next = to();
  if (!next) return;
  if (e.key === "Enter" || e.key === "Escape") zoomed = next.id;
  picked = next.id;
  drawTree();
}

function showTree(view) {
  by("stored").hidden = !view;
  if (!view) return;
  forest = plant(view);
  by("tree").toggleAttribute("hidden", !view.bytes);
  drawTree();
  if (!view.bytes) by("pick").replaceChildren("Nothing is stored yet.");
  else if (view.tooMany) by("pick").prepend(el("b", {}, "Too many blocks to draw: only models are shown. "));
  by("legend").hidden = by("hits").hidden = !view.bytes;
  by("models").hidden = !view.models.length;
  by("legend").replaceChildren(
    ...AGES.map(([, text], i) => el("li", {}, el("i", { class: "swatch u" + i }), text)), el("li", {}, el("i", { class: "swatch none" }), "not known"));
  by("models").tBodies[0].replaceChildren(...view.models.map((m) => el("tr", {},
    el("td", { class: "name", title: m.id }, m.name, m.latest ? "" : el("span", { class: "soft" }, " older version")),
    el("td", { class: "n" }, size(m.bytes)), el("td", { class: "n" }, number(m.tokens)), el("td", { class: "n few" }, number(m.blocks)),
    el("td", { class: "n" }, times(m.hits)), el("td", { class: "n" }, m.blocks ? ago(m.used) : "–"))));
}
