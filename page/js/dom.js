// Elements from data. Text is always text: nothing here reads HTML.

/**
 * el("button", {class: "quiet", onclick: stop, "aria-label": "Stop"}, "Stop", icon)
 * Properties that begin with "on" are listeners, `text` is the content, true and false set and
 * leave out an attribute, null and undefined leave it out.
 */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false || name === "value") continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  if ("value" in properties) element.value = properties.value; // of a list: once its choices are there
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** An element of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

const ICONS = {
  menu: "M4 6h16M4 12h16M4 18h16",
  plus: "M12 5v14M5 12h14",
  send: "M5 12h13M12 5l7 7-7 7",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12l5 5L19 7",
  picture: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.500 8.500h.01",
  edit: "M4 20h4L19 9l-4-4L4 16z",
  again: "M19 12a7 7 0 1 1-2-5M19 3v5h-5",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  sliders: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4v6M9 14v6",
  close: "M6 6l12 12M18 6L6 18",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500L19 19M5 19l1.500-1.500M17.500 6.500L19 5",
  key: "M8 16a4 4 0 1 1 4-4h9v4M17 12v3",
  back: "M19 12H5M11 6l-6 6 6 6",
  columns: "M4 5h16v14H4zM12 5v14",
  tool: "M14 6a4 4 0 0 0 5 5l-9 9-3-3 9-9a4 4 0 0 0-2-2z",
  thought: "M12 3a7 7 0 0 0-4 13v3h8v-3a7 7 0 0 0-4-13zM10 22h4",
};

export function icon(name) {
  return svg("svg", {viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true"}, svg("path", {d: ICONS[name]}));
}

/** A button that shows an icon and says its name to who cannot see it. */
export function iconButton(name, label, onclick, properties = {}) {
  return el("button", {type: "button", class: "icon-button", title: label, "aria-label": label, onclick, ...properties}, icon(name));
}

/** Copies text, and says so on the button for a moment. */
export function copyButton(label, done, text, properties = {}) {
  const button = iconButton("copy", label, async () => {
    await copyText(text());
    button.replaceChildren(icon("check"));
    button.title = done;
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.title = label;
    }, 1500);
  }, properties);
  return button;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS, from another machine, there is no clipboard but the old way.
    const area = el("textarea", {value: text, class: "off-screen"});
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** What is kept in the browser; a store that is full or forbidden loses nothing but the memory. */
export const memory = {
  get(name, fallback) {
    try {
      const text = localStorage.getItem("danlu." + name);
      return text === null ? fallback : JSON.parse(text);
    } catch {
      return fallback;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem("danlu." + name, JSON.stringify(value));
      return true;
    } catch {
      return false;
    }
  },
  remove(name) {
    try {
      localStorage.removeItem("danlu." + name);
    } catch { /* nothing is kept there */ }
  },
  /** Names of all that is kept, which begin so. */
  names(beginning) {
    try {
      return Object.keys(localStorage).filter((key) => key.startsWith("danlu." + beginning)).map((key) => key.slice("danlu.".length));
    } catch {
      return [];
    }
  },
};
