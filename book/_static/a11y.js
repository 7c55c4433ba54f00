/* Small repairs for readers who use a keyboard or a screen reader; the theme has no setting for them. */
document.addEventListener("DOMContentLoaded", () => {
  const each = (selector, change) => document.querySelectorAll(selector).forEach(change);

  // What a button is called must contain what is written on it.
  each(".search-button-field", (button) => {
    button.removeAttribute("aria-label");
  });
  each("button.theme-switch-button", (button) => {
    button.setAttribute("aria-label", "Light, dark or automatic colours");
    button.removeAttribute("title");
  });
  each(".theme-switch", (icon) => {
    icon.removeAttribute("title");
    icon.setAttribute("aria-hidden", "true");
  });

  // A triangle in the side bar says what it opens.
  each(".toctree-l1.has-children > details > summary", (summary) => {
    const page = summary.closest("li").querySelector("a").textContent.trim();
    summary.setAttribute("aria-label", `The pages of ${page}`);
  });

  // Everything on the page belongs to a landmark.
  each(".sidebar-primary-items__start", (box) => {
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Book");
  });

  // A list has items; the roles the bibliography comes with are no longer part of ARIA.
  each(".citation-list[role=list], .footnote-list[role=list]", (list) => list.removeAttribute("role"));
  each("[role=doc-biblioentry], [role=doc-backlink]", (entry) => entry.removeAttribute("role"));

  // A box that scrolls sideways can be reached by keyboard, and fades at its right edge while it goes on there. To know
  // which do, the browser lays them out, and the page has many that nobody sees yet: a few at a time, whenever it has
  // nothing else to do.
  // A page that moves all the time never has nothing to do; then it is twenty boxes every half second.
  const idle = window.requestIdleCallback
    ? (work) => requestIdleCallback(work, { timeout: 500 })
    : (work) => setTimeout(() => work({ timeRemaining: () => 10 }), 50);
  const fade = (box) => box.classList.toggle("goes-on", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  const reach = (where = document) =>
    new Promise((done) => {
      const boxes = [
        ...where.querySelectorAll("div.math, .bd-article pre, .pst-scrollable-table-container, .cell_output .output"),
      ];
      const some = (slice) => {
        let count = 0;
        do {
          const box = boxes.pop();
          if (!box) return done();
          const scrolls = box.scrollWidth > box.clientWidth && /auto|scroll/.test(getComputedStyle(box).overflowX);
          if (scrolls) {
            box.setAttribute("tabindex", "0");
            box.onscroll = () => fade(box);
          }
          if (scrolls || box.classList.contains("goes-on")) fade(box);
        } while (slice.didTimeout ? ++count < 20 : slice.timeRemaining() > 5);
        idle(some);
      };
      idle(some);
    });
  window.addEventListener("load", () => {
    window.boxesReached = reach();
  });
  window.addEventListener("resize", () => {
    window.boxesReached = reach();
  });
  document.addEventListener(
    "toggle",
    ({ target }) => {
      if (target.open && target.closest(".bd-article")) reach(target);
    },
    true,
  );
});
