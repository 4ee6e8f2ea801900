// The page's behaviour. These files are one function: each has a few functions of one purpose, main.js runs. Text from
// a study only ever goes through textContent and setAttribute.
const study = JSON.parse(document.getElementById("data").textContent);
const { groups, points } = study;
points.forEach((point, index) => (point.index = index));

const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const one = (selector, from = document) => from.querySelector(selector);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const unique = (values) => [...new Set(values)];

// Elements: attributes as an object, children as nodes or text.
const make = (document_create) => (name, attributes = {}, ...children) => {
  const element = document_create(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
};
const html = make((name) => document.createElement(name));
const svg = make((name) => document.createElementNS("http://www.w3.org/2000/svg", name));
const button = (text, attributes, act) => {
  const element = html("button", { type: "button", ...attributes }, text);
  element.addEventListener("click", act);
  return element;
};

// Three digits: "0.0123", "12.3", "12 300".
const digits = (value) => {
  if (!(value > 0)) return "0";
  const decimals = clamp(2 - Math.floor(Math.log10(value)), 0, 12);
  return Number(value.toPrecision(3)).toFixed(decimals);
};
const withPrefix = (value, unit) => {
  const steps = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [size, prefix] = steps.find(([size]) => value >= size * 0.9995) ?? [1, ""];
  return `${digits(value / size)} ${prefix}${unit}`;
};
const flopsText = (value) => withPrefix(value, "FLOP/s");
const factorText = (factor) => (factor >= 9.95 ? `${Math.round(factor)}×` : `${factor.toFixed(factor >= 1.995 ? 1 : 2)}×`);
