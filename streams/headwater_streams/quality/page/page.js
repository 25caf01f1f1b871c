"use strict";
// The contents mark what held by the class of its cell or of its block; the style hides by the row or section.
for (const cell of document.querySelectorAll(".hide-succeeded-validation-target-child")) {
  cell.parentElement.dataset.held = "true";
}
for (const block of document.querySelectorAll(".hide-succeeded-validations-column-section-target-child")) {
  block.closest(".ge-section").dataset.held = "true";
}
document.getElementById("only-failed").addEventListener("click", (event) => {
  const on = document.body.classList.toggle("only-failed");
  event.target.setAttribute("aria-pressed", String(on));
});
for (const toggle of document.querySelectorAll('[data-toggle="collapse"]')) {
  toggle.addEventListener("click", (event) => {
    event.preventDefault();
    const body = document.getElementById(toggle.getAttribute("href").slice(1));
    toggle.setAttribute("aria-expanded", String(body.classList.toggle("show")));
  });
}
// Charts of some expectations want a library that this page does not carry: their numbers stand beside them.
window.vegaEmbed = () => Promise.resolve();
