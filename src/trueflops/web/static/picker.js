// A name out of many, with a filter: the combobox of the ARIA authoring guide.
// In: a label, names, the present one. Out: an element; what is typed is taken even if no name fits,
// as the server knows more names (aliases, nodes, clusters) than a list should show.

import { fill, freshId, make } from "./dom.js";
import { words } from "./words.js";

const MOST_SHOWN = 60;

export function picker({ label, value, names, placeholder = "", help = "", commit }) {
  const id = freshId("picker");
  const list = make("ul", {
    id: `${id}-list`,
    role: "listbox",
    class: "picker-list",
    hidden: true,
    "aria-label": words(label),
  });
  const box = make("input", {
    type: "text",
    id,
    value,
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: words(placeholder),
    "aria-expanded": "false",
    "aria-controls": `${id}-list`,
    "aria-autocomplete": "list",
  });
  let active = -1;
  let shown = [];

  const close = () => {
    list.hidden = true;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
    active = -1;
  };
  const take = (name) => {
    box.value = name;
    close();
    if (name === value) return;
    value = name;
    commit(name, true);
  };
  const open = (filter) => {
    shown = matching(names, filter);
    fill(
      list,
      shown.map((name, index) =>
        make(
          "li",
          {
            role: "option",
            id: `${id}-${index}`,
            "aria-selected": String(name === value),
            // The press, not the click: the box would lose its focus and close the list in between.
            onmousedown: (event) => {
              event.preventDefault();
              take(name);
            },
          },
          name,
        ),
      ),
    );
    list.hidden = shown.length === 0;
    box.setAttribute("aria-expanded", String(!list.hidden));
    active = -1;
  };
  const move = (step) => {
    if (list.hidden) open("");
    if (!shown.length) return;
    active = (active + step + shown.length) % shown.length;
    [...list.children].forEach((item, index) => item.classList.toggle("active", index === active));
    list.children[active].scrollIntoView({ block: "nearest" });
    box.setAttribute("aria-activedescendant", `${id}-${active}`);
  };
  box.addEventListener("focus", () => box.select());
  box.addEventListener("click", () => open(""));
  box.addEventListener("input", () => open(box.value));
  box.addEventListener("blur", () => take(box.value.trim()));
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter") {
      event.preventDefault();
      take(active >= 0 ? shown[active] : box.value.trim());
    } else if (event.key === "Escape") {
      box.value = value;
      close();
    }
  });
  return make(
    "div",
    { class: "field field-picker", title: help },
    make("label", { for: id }, words(label)),
    make("div", { class: "picker" }, box, list),
  );
}

// Every piece that was typed must occur; names that begin with it come first.
function matching(names, filter) {
  const pieces = filter
    .toLowerCase()
    .split(/[\s-]+/)
    .filter(Boolean);
  const fits = names.filter((name) => pieces.every((piece) => name.toLowerCase().includes(piece)));
  const first = (name) => (name.toLowerCase().startsWith(pieces[0] ?? "") ? 0 : 1);
  return fits.sort((a, b) => first(a) - first(b)).slice(0, MOST_SHOWN);
}
