// Pictures that go with a message: chosen, pasted or dropped, made smaller, shown before they are
// sent. They leave the browser as data: URLs in the request alone.
import {el, icon, iconButton} from "../dom.js";
import {t} from "../i18n.js";

const MOST = 8;
const LONGEST_SIDE = 1280; // more than models look at, and room in the browser's store

export const isPicture = (url) => typeof url === "string" && /^data:image\/(?:png|jpeg);base64,[A-Za-z0-9+/=]*$/.test(url);

/** As a data: URL; rejects what the browser cannot read. */
async function shrunk(file) {
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff"; // behind what is transparent
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas.toDataURL("image/jpeg", 0.9);
}

export function pictureRow(pictures, onRemove = null) {
  return el("div", {class: "pictures"}, pictures.filter(isPicture).map((url, index) => el("div", {class: "picture"},
    el("img", {src: url, alt: t("pictureOf", index + 1)}),
    onRemove && iconButton("close", t("removePicture", index + 1), () => onRemove(index)))));
}

/** What is to go with the next message. */
export class PictureTray {
  pictures = [];
  element = el("div", {class: "tray", hidden: true});
  #problem = "";
  #input = el("input", {type: "file", accept: "image/*", multiple: true, hidden: true, tabindex: -1, "aria-label": t("addPicture"), onchange: () => {
    this.take([...this.#input.files]);
    this.#input.value = "";
  }});
  button = el("button", {type: "button", class: "icon-button", title: t("addPicture"), "aria-label": t("addPicture"), onclick: () => this.#input.click()}, icon("picture"));

  constructor() {
    this.button.append(this.#input);
  }

  async take(files) {
    this.#problem = "";
    for (const file of files) {
      if (this.pictures.length === MOST) {
        this.#problem = t("tooManyPictures", MOST);
        break;
      }
      try {
        this.pictures.push(await shrunk(file));
      } catch {
        this.#problem = t("noPicture", file.name);
      }
    }
    this.draw();
  }

  /** Pictures among what was pasted or dropped; whether there were any. */
  takeFrom(transfer) {
    const files = [...(transfer?.files ?? [])].filter((file) => file.type.startsWith("image/"));
    if (files.length) this.take(files);
    return files.length > 0;
  }

  clear() {
    this.pictures = [];
    this.#problem = "";
    this.draw();
  }

  draw() {
    this.element.hidden = !this.pictures.length && !this.#problem;
    this.element.replaceChildren(
      pictureRow(this.pictures, (index) => {
        this.pictures.splice(index, 1);
        this.draw();
      }),
      this.#problem && el("p", {class: "problem", text: this.#problem}));
  }
}
