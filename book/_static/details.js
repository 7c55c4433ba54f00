/* A link that leads to a folded detail, or to anything inside one, opens it first. */
(() => {
  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const section = target.matches("section") ? target : target.parentElement; // an older anchor stands at its top
    const own = section.querySelector(":scope > details.detail");
    const folds = own ? [own] : [];
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) folds.push(fold);
    const closed = folds.filter((fold) => !fold.open);
    closed.forEach((fold) => { fold.open = true; });
    if (closed.length) target.scrollIntoView();
  };
  document.addEventListener("DOMContentLoaded", open);
  window.addEventListener("hashchange", open);
  // The same link again changes no address, but a reader may have closed the detail meanwhile.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href*='#']");
    if (link && link.hash && link.pathname === location.pathname && link.hash === location.hash) setTimeout(open);
  });
})();
