// Tiles and waves of one product: the output cut into tiles, coloured by the wave that computes them.
// In: an answer of explain matmul. Out: svg: the output, how full each wave is, and other tile shapes.
// Tiles are dealt row by row here; which tile goes first differs between kernels, how many does not.

/* global d3 */
import { show } from "../units.js";
import { area, explore, label, named } from "./drawn.js";

const MOST_DRAWN = 96; // tiles each way; of more, the first ones stand for all
const WAVES_DRAWN = 14;

export function draw(element, answer, { words }) {
  const { tile, units, m, n } = answer;
  const said = words("{tiles} tiles of {rows}×{columns} on {units} units: {waves} waves, the last {share} full", {
    tiles: tile.tiles.toLocaleString("en-US"),
    rows: tile.rows,
    columns: tile.columns,
    units,
    waves: tile.waves.toFixed(2),
    share: `${(100 * tile.last_wave_share).toFixed(0)} %`,
  });
  const wide = Math.max(element.clientWidth || 560, 260);
  const side = Math.min(wide * 0.52, 300);
  const down = Math.min(tile.tiles_down, MOST_DRAWN);
  const across = Math.min(tile.tiles_across, MOST_DRAWN);
  const scale = side / Math.max(down * tile.rows, across * tile.columns);
  const [w, h] = [across * tile.columns * scale, down * tile.rows * scale];
  const matrix = { w: Math.max(w, 40), h: Math.max(h, 40) };
  const shapes = [...answer.tile_shapes].sort((a, b) => a.seconds - b.seconds).slice(0, 8);
  const waves = Math.ceil(tile.waves);
  const right = Math.min(waves, WAVES_DRAWN) * 15 + 52;
  const height = Math.max(matrix.h + 46, right + 8) + shapes.length * 19 + 40;
  const { svg, width } = area(element, height, said, "group");
  named(svg.append("g"), "tile.waves", tile.waves);
  named(svg.append("g"), "tile.tiles", tile.tiles);
  label(svg, 0, 12, words("Output, {m} × {n}", { m: m.toLocaleString("en-US"), n: n.toLocaleString("en-US") }), {
    size: 11.5,
    colour: "var(--soft)",
  });
  const output = svg.append("g").attr("transform", "translate(0,20)");
  const paths = new Map();
  const [tw, th] = [matrix.w / across, matrix.h / down];
  const gap = Math.min(1, tw * 0.12, th * 0.12);
  const box = `h${(tw - gap).toFixed(1)}v${(th - gap).toFixed(1)}h${(gap - tw).toFixed(1)}z`;
  const lefts = d3.range(across).map((column) => (column * tw).toFixed(1));
  for (let row = 0; row < down; row += 1) {
    const top = (row * th).toFixed(1);
    lefts.forEach((left, column) => {
      const wave = Math.floor((row * tile.tiles_across + column) / units);
      paths.set(wave, `${paths.get(wave) ?? ""}M${left},${top}${box}`);
    });
  }
  for (const [wave, path] of paths) {
    output
      .append("path")
      .attr("d", path)
      .attr("fill", colourOf(wave, waves))
      .attr("fill-opacity", wave === waves - 1 ? 0.95 : 0.35 + 0.3 * (wave % 2));
  }
  const cutAway = tile.tiles_down > down || tile.tiles_across > across;
  const under = cutAway
    ? words("the first {down} × {across} of {tiles} tiles", {
        down,
        across,
        tiles: tile.tiles.toLocaleString("en-US"),
      })
    : words("{down} × {across} tiles of {rows} × {columns}", {
        down,
        across,
        rows: tile.rows,
        columns: tile.columns,
      });
  label(svg, 0, 20 + matrix.h + 16, under, { size: 11.5, colour: "var(--faint)", room: side });
  waveBars(svg, side + 26, width, tile, units, waves, words);
  shapeBars(svg, height - shapes.length * 19 - 18, width, shapes, tile, words);
}

const colourOf = (wave, waves) => (wave === waves - 1 ? "var(--c2)" : "var(--c1)");

// One bar a wave, as long as it is full: the last one leaves units idle.
function waveBars(svg, left, width, tile, units, waves, words) {
  const room = width - left - 60;
  const group = svg.append("g").attr("transform", `translate(${left},0)`);
  label(group, 0, 12, words("Waves of {units} tiles", { units }), { size: 11.5, colour: "var(--soft)" });
  const listed = waves <= WAVES_DRAWN ? d3.range(waves) : [...d3.range(WAVES_DRAWN - 2), null, waves - 1];
  listed.forEach((wave, index) => {
    const y = 22 + index * 15;
    if (wave === null) {
      label(group, 24, y + 9, words("{count} more like these", { count: waves - WAVES_DRAWN + 1 }), {
        size: 11,
        colour: "var(--faint)",
      });
      return;
    }
    const full = wave === waves - 1 ? tile.last_wave_share : 1;
    label(group, 16, y + 9, String(wave + 1), { size: 10.5, anchor: "end", colour: "var(--faint)" });
    group
      .append("rect")
      .attr("x", 22)
      .attr("y", y)
      .attr("width", room)
      .attr("height", 11)
      .attr("rx", 1.5)
      .attr("fill", "var(--grid)");
    group
      .append("rect")
      .attr("x", 22)
      .attr("y", y)
      .attr("width", room * full)
      .attr("height", 11)
      .attr("rx", 1.5)
      .attr("fill", colourOf(wave, waves))
      .attr("fill-opacity", wave === waves - 1 ? 0.95 : 0.35 + 0.3 * (wave % 2));
    if (wave === waves - 1) {
      named(
        label(group, 22 + room + 5, y + 9.5, `${(100 * full).toFixed(0)} %`, { size: 10.5, colour: "var(--soft)" }),
        "tile.last_wave_share",
        full,
      );
    }
  });
  const lost = [
    ["padding_lost_share", words("lost to padding")],
    ["quantisation_lost_share", words("lost to the last wave")],
  ];
  lost.forEach(([name, text], index) =>
    named(
      label(group, 0, 22 + listed.length * 15 + 14 + index * 15, `${text}: ${(100 * tile[name]).toFixed(1)} %`, {
        size: 11.5,
        colour: "var(--soft)",
        room: width - left,
      }),
      `tile.${name}`,
      tile[name],
    ),
  );
}

// What each tile shape would take: the fastest is the one that is used.
function shapeBars(svg, top, width, shapes, used, words) {
  label(svg, 0, top, words("Time with each tile shape"), { size: 11.5, colour: "var(--soft)" });
  const x = d3
    .scaleLinear()
    .domain([0, d3.max(shapes, (shape) => shape.seconds)])
    .range([0, width - 190]);
  const rows = svg
    .append("g")
    .selectAll("g")
    .data(shapes)
    .enter()
    .append("g")
    .attr("transform", (shape, index) => `translate(0,${top + 8 + index * 19})`);
  rows.each(function each(shape) {
    const row = d3.select(this);
    const own = shape.rows === used.rows && shape.columns === used.columns;
    label(row, 78, 11.5, `${shape.rows} × ${shape.columns}`, { anchor: "end", weight: own ? 650 : 400 });
    row
      .append("rect")
      .attr("x", 88)
      .attr("y", 2)
      .attr("height", 12)
      .attr("rx", 1.5)
      .attr("width", x(shape.seconds))
      .attr("fill", own ? "var(--accent)" : "var(--c8)")
      .attr("fill-opacity", own ? 1 : 0.45);
    named(
      label(row, 94 + x(shape.seconds), 12, show(shape.seconds, "seconds"), {
        colour: own ? "var(--ink)" : "var(--soft)",
        weight: own ? 650 : 400,
      }),
      `tile_shapes.${shape.rows}x${shape.columns}`,
      shape.seconds,
    );
  });
  explore(rows.nodes(), (shape) => [
    `${shape.rows} × ${shape.columns}`,
    show(shape.seconds, "seconds"),
    words("{tiles} tiles, {waves} waves, the last {share} full", {
      tiles: shape.tiles.toLocaleString("en-US"),
      waves: shape.waves.toFixed(2),
      share: `${(100 * shape.last_wave_share).toFixed(0)} %`,
    }),
  ]);
}
