/* Folds: optional sections, hints, solutions and code.

   - A link that leads into a fold opens it.
   - One button opens or closes all folds of the page, and an optional section also has a button at its end.
   - After a reload or Back, the folds are as the reader left them, so the text has the same length and the reader's
     place is the same. */
(() => {
  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const section = target.matches("section") ? target : target.parentElement; // an older anchor stands at its top
    const own = section.querySelector(":scope > details.detail");
    const folds = own ? [own] : [];
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) folds.push(fold);
    const closed = folds.filter((fold) => !fold.open);
    closed.forEach((fold) => {
      fold.open = true;
    });
    if (closed.length) target.scrollIntoView();
  };

  const keep = (folds) => {
    const key = `attention-course: open folds of ${location.pathname}`;
    try {
      if (performance.getEntriesByType("navigation")[0]?.type !== "navigate")
        for (const index of JSON.parse(sessionStorage.getItem(key)) ?? []) if (folds[index]) folds[index].open = true;
    } catch {
      /* a browser that keeps nothing */
    }
    const write = () => {
      try {
        sessionStorage.setItem(key, JSON.stringify(folds.flatMap((fold, index) => (fold.open ? [index] : []))));
      } catch {
        /* a browser that keeps nothing */
      }
    };
    addEventListener("pagehide", write);
    document.addEventListener("visibilitychange", write); // a phone may discard a hidden tab without another word
  };

  const addButtons = (folds) => {
    for (const fold of folds.filter((fold) => fold.matches(".detail"))) {
      const end = Object.assign(document.createElement("p"), { className: "close-section" });
      end.append(
        Object.assign(document.createElement("button"), { type: "button", textContent: "Close this section" }),
      );
      end.firstChild.addEventListener("click", () => {
        fold.open = false;
        fold.parentElement.scrollIntoView();
        fold.querySelector("summary").focus({ preventScroll: true });
      });
      fold.append(end);
    }
    const button = document.querySelector(".folds > button");
    if (!button) return;
    const allOpen = () => folds.every((fold) => fold.open);
    const label = () => {
      button.textContent = `${allOpen() ? "Close" : "Open"} all folded parts`;
    };
    button.addEventListener("click", () => {
      const now = !allOpen();
      folds.forEach((fold) => {
        fold.open = now;
      });
    });
    document.addEventListener("toggle", label, true);
    label();
  };

  document.addEventListener("DOMContentLoaded", () => {
    const folds = [...document.querySelectorAll(".bd-article details")];
    keep(folds);
    addButtons(folds);
    open();
  });
  window.addEventListener("hashchange", open);
  // The same link again changes no address, but a reader may have closed the detail meanwhile.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href*='#']");
    if (link && link.hash && link.pathname === location.pathname && link.hash === location.hash) setTimeout(open);
  });
})();
