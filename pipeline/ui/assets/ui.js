"use strict";
// Shows a run in progress: takes its state from the server every two seconds.
const live = document.getElementById("live");
const focusable = () => [...live.querySelectorAll("summary, [tabindex]")];

function keep(fresh) {
  // Charts stay, and are given new rows; what was unfolded or focused stays so.
  for (const chart of fresh.querySelectorAll(".chart")) {
    const drawn = document.getElementById(chart.id);
    if (drawn) chart.replaceWith(drawn);
  }
  const open = [...live.querySelectorAll("details")].map(each => each.open);
  fresh.querySelectorAll("details").forEach((each, n) => {
    if (n < open.length) each.open = open[n];
  });
  const focused = focusable().indexOf(document.activeElement);
  live.replaceChildren(...fresh.childNodes);
  if (focused >= 0) focusable()[focused]?.focus({ preventScroll: true });
}

async function look() {
  const answer = await fetch(live.dataset.from, { headers: { accept: "application/json" } });
  if (!answer.ok) return;
  const { going, html, charts } = await answer.json();
  if (!going) return location.reload();
  const fresh = new DOMParser().parseFromString(html, "text/html").body;
  keep(fresh);
  for (const [id, spec] of Object.entries(charts)) {
    const view = window.reportViews[id];
    if (view) await view.data("rows", spec.data.values).runAsync();
    else await window.reportDraw(id, spec);
  }
}

async function follow() {
  await window.reportDrawn;
  for (;;) {
    await new Promise(done => setTimeout(done, 2000));
    if (!document.hidden) await look().catch(() => {}); // the server may be gone
  }
}
if (live) follow();
