// Line charts over the last minutes, as SVG: a scale from zero, one line a series, values under the pointer.
import { make, makeSvg } from "./dom.js";
import { t } from "./text.js";

const HEIGHT = 150;
// Seconds that a chart shows: the least of these that holds all points.
export const SPANS = [60, 300];
const PAD = { left: 46, right: 8, top: 8, bottom: 20 };

// The smallest of 1, 2, 5 times a power of ten that is not below `value`.
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((limit) => limit >= value * 0.999);
}

export class Chart {
  // series: [{name, text}]: `name` is a field of the points; format: of a value; top: the scale's fixed end, if any.
  constructor({ title, series, format, top }) {
    Object.assign(this, { title, series, format, top });
    this.points = [];
    this.span = SPANS[0];
    this.svg = makeSvg("svg", { class: "plot", role: "img", height: HEIGHT });
    this.heading = make("h2");
    this.legend = make("p", { class: "legend" });
    this.element = make("section", { class: "panel" }, this.heading, this.legend, this.svg);
    this.pointer = null;
    this.svg.addEventListener("pointermove", (event) => {
      this.pointer = event.clientX - this.svg.getBoundingClientRect().left;
      this.draw();
    });
    this.svg.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.draw();
    });
  }

  update(points) {
    this.points = points;
    const covered = points.length ? points.at(-1).time - points[0].time : 0;
    this.span = SPANS.find((span) => covered <= span) ?? SPANS.at(-1);
    this.draw();
  }

  x(time, end, width) {
    return PAD.left + (1 - (end - time) / this.span) * (width - PAD.left - PAD.right);
  }

  y(value, top) {
    return PAD.top + (1 - value / top) * (HEIGHT - PAD.top - PAD.bottom);
  }

  // A series' line; gaps where it has no value.
  path(name, end, top, width) {
    let d = "";
    let joined = false;
    for (const point of this.points) {
      const value = point[name];
      if (!Number.isFinite(value)) {
        joined = false;
        continue;
      }
      const place = `${this.x(point.time, end, width).toFixed(1)} ${this.y(Math.min(value, top), top).toFixed(1)}`;
      d += joined ? `L${place}` : `M${place}h0`; // a lone value is a dot
      joined = true;
    }
    return d;
  }

  draw() {
    const width = this.svg.clientWidth || 320;
    const end = this.points.at(-1)?.time ?? 0;
    const highest = Math.max(0, ...this.points.flatMap((point) => this.series.map(({ name }) => point[name]).filter(Number.isFinite)));
    const top = this.top ?? ceiling(highest);
    const children = [];
    for (const share of [0, 0.5, 1]) {
      const y = this.y(share * top, top);
      children.push(makeSvg("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y, y2: y }),
        makeSvg("text", { x: PAD.left - 6, y: y + 4, "text-anchor": "end" }, this.format(share * top)));
    }
    children.push(makeSvg("text", { x: PAD.left, y: HEIGHT - 4 }, t("seconds_ago", this.span)),
      makeSvg("text", { x: width - PAD.right, y: HEIGHT - 4, "text-anchor": "end" }, t("now")));
    this.series.forEach(({ name }, index) => {
      children.push(makeSvg("path", { class: `line c${index}`, d: this.path(name, end, top, width) }));
    });
    const point = this.pointed(end, width);
    if (this.pointer !== null && point) {
      const x = this.x(point.time, end, width);
      children.push(makeSvg("line", { class: "cross", x1: x, x2: x, y1: PAD.top, y2: HEIGHT - PAD.bottom }));
    }
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...children);
    this.describe(point);
  }

  // The point under the pointer; the last one without a pointer.
  pointed(end, width) {
    if (this.pointer === null) return this.points.at(-1);
    let best = null;
    for (const point of this.points) {
      const distance = Math.abs(this.x(point.time, end, width) - this.pointer);
      if (best === null || distance <= best.distance) best = { point, distance };
    }
    return best?.point;
  }

  describe(point) {
    const shown = (name) => (Number.isFinite(point?.[name]) ? this.format(point[name]) : "–");
    this.heading.textContent = t(this.title);
    this.legend.replaceChildren(...this.series.map(({ name, text }, index) =>
      make("span", { class: "series" }, make("span", { class: `swatch c${index}` }), `${t(text)} `, make("b", null, shown(name)))));
    const values = this.series.map(({ name, text }) => `${t(text)} ${shown(name)}`).join(", ");
    this.svg.setAttribute("aria-label", `${t(this.title)}. ${t("table_of", values)}`);
  }
}
