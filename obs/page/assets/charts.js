// Two charts over the same time: the share of prompt tokens that were reused, and the time that was saved.

const HIGH = 132, LEFT = 52, LOW = 20;

// bars groups the points so that a bar is at least 5 pixels wide, and counts time from the right: now.
function bars(front, width) {
  const points = front.points;
  const room = Math.max(1, Math.floor((width - LEFT) / 5));
  const group = Math.max(1, Math.ceil(points.length / room));
  const out = [];
  for (let end = points.length; end > 0; end -= group) {
    const sum = [0, 0, 0, 0];
    for (const p of points.slice(Math.max(0, end - group), end)) p.forEach((v, i) => (sum[i] += v));
    out.unshift({ at: front.start + 1000 * front.width * Math.max(0, end - group), sum });
  }
  return { out, seconds: group * front.width, slots: Math.max(out.length, 30) };
}

const hour = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });

// chart draws a value from 0 to most for each bar; null is a gap.
function chart(id, front, value, most, axis, say) {
  const at = by(id);
  const width = at.parentElement.clientWidth;
  if (!width) return;
  const { out, seconds, slots } = bars(front, width);
  const tall = HIGH - LOW - 8, step = (width - LEFT) / slots;
  const top = most(out.map((b) => value(b.sum)));
  const parts = [];
  for (const part of [0, 0.5, 1]) {
    const y = 8 + tall * (1 - part);
    parts.push(svg("line", { class: "rule", x1: LEFT, x2: width, y1: y, y2: y }), svg("text", { x: LEFT - 8, y: y + 4, class: "end" }, axis(top * part)));
  }
  out.forEach((b, i) => {
    const v = value(b.sum);
    if (v === null) return;
    const h = Math.max(2, (tall * v) / top);
    const x = LEFT + (slots - out.length + i) * step;
    parts.push(svg("rect", { class: "bar", x: x + 0.5, y: 8 + tall - h, width: Math.max(1, step - 1), height: h, rx: 1 }, svg("title", {}, hour(b.at) + ": " + say(b.sum))));
  });
  const past = seconds * slots;
  parts.push(svg("text", { x: LEFT, y: HIGH - 4 }, "− " + span(past)), svg("text", { x: width, y: HIGH - 4, class: "end" }, "now"));
  at.setAttribute("width", width);
  at.setAttribute("height", HIGH);
  at.setAttribute("viewBox", "0 0 " + width + " " + HIGH);
  at.replaceChildren(...parts);
}

// even is a round number of seconds, minutes or hours at or above.
function even(x) {
  for (const unit of [3600, 60]) if (x > unit) return unit * even(x / unit);
  for (let unit = 0.001; ; unit *= 10) for (const n of [1, 2, 5]) if (n * unit >= x) return n * unit;
}

function drawCharts(front) {
  by("overtime").hidden = !front || !front.points.length;
  if (by("overtime").hidden) return;
  chart("rate", front, ([, asked, reused]) => (asked ? share(reused, asked) : null), () => 100, (v) => v + " %",
    ([requests, asked, reused]) => percent(reused, asked) + " of " + count(asked, "prompt token") + " in " + count(requests, "request"));
  chart("saved", front, (p) => (p[3] > 0 ? p[3] : null), (all) => even(Math.max(0.1, ...all.map((v) => v || 0))), (v) => (v ? short(v) : "0"),
    (p) => span(p[3]) + " saved, " + number(p[2]) + " of " + count(p[1], "token") + " reused");
  by("rate").setAttribute("aria-label", "Share of prompt tokens reused over time, " + percent(front.reused, front.asked) + " in all");
  by("saved").setAttribute("aria-label", "Time saved, " + span(front.saved) + " in all");
  by("rate-now").textContent = percent(front.reused, front.asked);
  by("saved-now").textContent = span(front.saved);
}

const short = (s) => (s < 1 ? +(s * 1000).toPrecision(3) + " ms" : s < 60 ? +s.toPrecision(3) + " s" : s < 3600 ? +(s / 60).toPrecision(2) + " min" : +(s / 3600).toPrecision(2) + " h");
