/* The filter of a page of mistakes: what its exercises know, by words of the name or of what the check says. */
document.addEventListener("DOMContentLoaded", () => {
  const place = document.querySelector(".mistakes-tools");
  const items = [...document.querySelectorAll(".bd-article section section li")];
  const said = items.filter((item) => !item.closest("details"));
  const field = Object.assign(document.createElement("input"), { type: "search", placeholder: "Filter the mistakes" });
  field.setAttribute("aria-label", "Filter the mistakes");
  const count = document.createElement("p");
  count.setAttribute("role", "status");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().match(/\S+/g) ?? [];
    for (const item of items) item.hidden = !words.every((word) => item.textContent.toLowerCase().includes(word));
    const left = (part) => part.querySelector("li:not([hidden])");
    for (const title of document.querySelectorAll(".mistakes-section")) title.hidden = !left(title.nextElementSibling);
    for (const part of document.querySelectorAll(".bd-article section section, .bd-article section section details"))
      part.hidden = !left(part);
    const shown = said.filter((item) => !item.hidden).length;
    const hint = shown ? "" : "; try fewer words, or another chapter";
    count.textContent = words.length ? `${shown} of ${said.length} mistakes${hint}` : "";
  });
  field.addEventListener("keydown", (event) => event.stopPropagation()); // the theme turns pages with the arrow keys
  place.append(field, count);
});
