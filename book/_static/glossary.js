/* The glossary's index of letters and its filter. Both need the list, so they are made here. */
document.addEventListener("DOMContentLoaded", () => {
  const place = document.querySelector(".glossary-tools");
  const list = document.querySelector("dl.glossary");
  const entries = [...list.querySelectorAll(":scope > dd")].map((definition) => {
    const terms = [];
    for (let e = definition.previousElementSibling; e?.tagName === "DT"; e = e.previousElementSibling) terms.unshift(e);
    return { terms, definition };
  });
  const letterOf = ({ terms: [term] }) => term.textContent[0].toUpperCase();

  const letters = document.createElement("nav");
  letters.setAttribute("aria-label", "Letters");
  for (const letter of new Set(entries.map(letterOf))) {
    const [first] = entries.find((entry) => letterOf(entry) === letter).terms;
    letters.append(Object.assign(document.createElement("a"), { href: `#${first.id}`, textContent: letter }), " ");
  }

  const field = Object.assign(document.createElement("input"), { type: "search", placeholder: "Filter the terms" });
  field.setAttribute("aria-label", "Filter the terms");
  const count = document.createElement("p");
  count.setAttribute("role", "status");
  field.addEventListener("input", () => {
    const words = field.value.trim().toLowerCase();
    let shown = 0;
    for (const { terms, definition } of entries) {
      const fits = [...terms, definition].some((e) => e.textContent.toLowerCase().includes(words));
      for (const e of [...terms, definition]) e.hidden = !fits;
      shown += fits;
    }
    count.textContent = words ? `${shown} of ${entries.length} entries` : "";
  });
  field.addEventListener("keydown", (event) => event.stopPropagation()); // the theme turns pages with the arrow keys
  place.append(letters, field, count);
});
