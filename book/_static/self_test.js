/* "Test yourself": a click on an answer says why it is right, or which mistake it is.

   The notebook has the questions as lists and all explanations in one fold after them. That is what paper and a browser
   without scripts show. Here each answer becomes a button, and what was chosen last is kept in this browser. */
document.addEventListener("DOMContentLoaded", () => {
  const section = document.getElementById("test-yourself");
  const fold = section?.querySelector(":scope > details");
  if (!fold) return;
  const KEY = `attention-course: answers of ${location.pathname}`;
  const explanations = [...fold.querySelectorAll(":scope > ul")];

  let chosen = {};
  try {
    chosen = JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    /* nothing stored, or nothing readable */
  }
  const keep = () => {
    try {
      localStorage.setItem(KEY, JSON.stringify(chosen));
    } catch {
      /* a browser that keeps nothing */
    }
  };

  [...section.querySelectorAll(":scope > ul")].forEach((list, number) => {
    list.classList.add("self-test");
    list.setAttribute("role", "group");
    list.setAttribute("aria-label", `Answers to question ${number + 1}`);
    const said = Object.assign(document.createElement("div"), { className: "self-test-said" });
    said.setAttribute("role", "status");
    list.after(said);

    const buttons = [...list.children].map((item) => {
      item.setAttribute("role", "presentation");
      for (const link of item.querySelectorAll("a")) link.replaceWith(...link.childNodes); // a button holds no link
      const button = Object.assign(document.createElement("button"), { type: "button" });
      const only = item.children.length === 1 && item.firstElementChild.matches("p") ? item.firstElementChild : item;
      button.append(...only.childNodes);
      item.replaceChildren(button);
      return button;
    });
    const show = (choice) => {
      buttons.forEach((button, index) => {
        const right = explanations[number].children[index].querySelector("strong")?.textContent === "Right.";
        button.setAttribute("aria-pressed", index === choice);
        button.className = index !== choice ? "" : right ? "right" : "wrong";
      });
      const text = explanations[number].children[choice].cloneNode(true);
      if (buttons[choice].className === "wrong") {
        const label = text.firstElementChild?.matches("p") ? text.firstElementChild : text;
        const [letter, ...rest] = label.firstChild.textContent.split(" ");
        label.firstChild.textContent = rest.join(" ");
        label.prepend(`${letter} `, Object.assign(document.createElement("strong"), { textContent: "No. " }));
      }
      said.replaceChildren(...text.childNodes);
    };
    buttons.forEach((button, index) => {
      button.addEventListener("click", () => {
        chosen[number] = index;
        keep();
        show(index);
      });
    });
    if (buttons[chosen[number]]) show(chosen[number]);
  });
});
