// What a reader takes along: files of an answer and of its pictures.
// In: an answer, an element with an svg. Out: a download.

import { exported } from "./api.js";

/** Save a Blob under a name. */
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}

export function saveJson(answer, name) {
  save(new Blob([JSON.stringify(answer, null, 2)], { type: "application/json" }), `${name}.json`);
}

/** The trace, the table or the launch files that the server makes of the same question. */
export async function saveExported(kind, command, asked, name) {
  save(await exported(kind, command, asked), name);
}

/** The picture's svg as a file that looks the same without this page. */
export function saveSvg(slot, name) {
  const svg = slot.querySelector("svg");
  if (svg) save(new Blob([standalone(svg).text], { type: "image/svg+xml" }), `${name}.svg`);
}

/** The same as pixels, two for each of the screen's. */
export async function savePng(slot, name) {
  const svg = slot.querySelector("svg");
  if (!svg) return;
  const { text, width, height } = standalone(svg);
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width * 2;
  canvas.height = height * 2;
  const pen = canvas.getContext("2d");
  pen.fillStyle = getComputedStyle(slot.closest(".picture")).backgroundColor;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  canvas.toBlob((blob) => save(blob, `${name}.png`), "image/png");
}

// Properties that style sheets give and a lone file would lack.
const KEPT = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-opacity",
  "stroke-dasharray",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
  "dominant-baseline",
  "font-variant-numeric",
  "display",
  "visibility",
];

function standalone(svg) {
  const { width, height } = svg.getBoundingClientRect();
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  const copies = [copy, ...copy.querySelectorAll("*")];
  originals.forEach((original, index) => {
    const style = getComputedStyle(original);
    for (const property of KEPT) copies[index].style.setProperty(property, style.getPropertyValue(property));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}
