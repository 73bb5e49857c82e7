"use strict";
// Draws each chart from its specification by Vega's interpreter: no code from strings.
window.reportViews = {};
window.reportDraw = async (id, spec) => {
  const compiled = vegaLite.compile(spec).spec;
  const view = new vega.View(vega.parse(compiled, null, { ast: true }), {
    expr: vega.expressionInterpreter,
    renderer: "svg",
    container: document.getElementById(id),
    hover: true,
  });
  await view.runAsync();
  // The figure has a name and a table; the shapes alone tell a reader nothing.
  document.querySelector(`#${id} svg`).setAttribute("aria-hidden", "true");
  window.reportViews[id] = view;
};
window.reportDrawn = (async () => {
  const specs = JSON.parse(document.getElementById("charts").textContent);
  for (const [id, spec] of Object.entries(specs)) await window.reportDraw(id, spec);
  return Object.keys(specs).length;
})();
// In a frame with `srcdoc`, as in the page of Kubeflow Pipelines, a link to a section
// would load that page into the frame.
if (location.protocol === "about:") {
  addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#']");
    const section = link && document.getElementById(link.hash.slice(1));
    if (!section) return;
    event.preventDefault();
    section.tabIndex = -1;
    section.focus();
    section.scrollIntoView();
  });
}
// What is folded on the screen is printed.
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details:not([open])")) {
    each.dataset.folded = "";
    each.open = true;
  }
});
addEventListener("afterprint", () => {
  for (const each of document.querySelectorAll("details[data-folded]")) {
    delete each.dataset.folded;
    each.open = false;
  }
});
