// The icicle: each box is a run of tokens; below it is what goes on from it. Its width is its bytes and all theirs.

const ROW = 30;
const AGES = [ // the newest first: minutes, and what the legend says
  [10, "last 10 minutes"], [60, "last hour"], [24 * 60, "last day"], [7 * 24 * 60, "last week"], [Infinity, "longer ago"],
];

let forest = null; // the root node: all that is stored
let zoomed = "all"; // ids, which outlive an update
let picked = "";

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

function find(id, n = forest) {
  if (!n || n.id === id) return n;
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
    run: () => [count(n.tokens, "token") + (n.hits ? " · " + count(n.hits, "hit") : ""), count(n.tokens, "token"), number(n.tokens)],
  }[n.kind]();
  const fits = (width - 12) / (n.kind === "model" ? 7.6 : 6.7);
  const text = long.find((t) => t.length <= fits);
  if (text !== undefined) return text;
  return n.kind === "model" && fits > 5 ? n.name.slice(0, fits - 1) + "…" : "";
}

function describe(n) {
  const used = "last used " + ago(n.used);
  switch (n.kind) {
    case "all":
      return ["Everything: " + size(n.bytes), "tap a box to look closer"];
    case "model":
      return [n.name + (n.latest ? "" : " (an older version)"), size(n.bytes), count(n.blocks, "block"), count(n.tokens, "token"), count(n.hits, "hit"), used];
    case "more":
      return [number(n.more) + " smaller ones, drawn as one", size(n.bytes), count(n.blocks, "block"), count(n.tokens, "token"), count(n.hits, "hit"), used];
  }
  const behind = n.bytes - n.own;
  return [
    "Tokens " + number(n.first) + " to " + number(n.first + n.tokens), count(n.blocks, "block"), size(n.own) + (behind ? " and " + size(behind) + " behind it" : ""),
    count(n.hits, "hit"), used, n.scope ? "scope " + n.scope : "shared", n.model.name,
  ];
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
    for (const k of n.kids) {
      const part = (w * k.bytes) / n.bytes;
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
    const all = n.up ? n.up.kids : [n];
    return all[all.indexOf(n) + by];
  };
  const to = {
    ArrowDown: () => n.kids[0], ArrowUp: () => n.up, ArrowLeft: () => beside(-1), ArrowRight: () => beside(1), Enter: () => n, Escape: () => n.up || n,
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
    el("td", { class: "n" }, size(m.bytes)), el("td", { class: "n" }, number(m.blocks)), el("td", { class: "n few" }, number(m.tokens)),
    el("td", { class: "n" }, number(m.hits)), el("td", { class: "n" }, m.blocks ? ago(m.used) : "–"))));
}
