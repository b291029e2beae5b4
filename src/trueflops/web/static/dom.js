// Elements of the page. In: a tag, attributes, children. Out: an element.
// Text always goes in as text nodes, so that a hostile name can never become markup.

/** make("button", {type: "button", onclick: f}, "Pin"); null children and attributes are left out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** The element with everything in it replaced. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null));
  return element;
}

let counted = 0;
/** An id that no other element has: for labels and descriptions. */
export function freshId(stem) {
  counted += 1;
  return `${stem}-${counted}`;
}
