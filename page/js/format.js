// Numbers and times as people read them.
import {currentLanguage, t} from "./i18n.js";

const locale = () => (currentLanguage() === "zh" ? "zh-CN" : "en");

/** 12345.678 -> "12,346"; 0.000123 -> "1.23e-4"; no number -> "–". */
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2).replace("e+", "e");
  return new Intl.NumberFormat("en", {maximumSignificantDigits: size >= 1000 ? Math.max(digits, Math.ceil(Math.log10(size))) : digits}).format(value);
}

/** Marks of an axis that are `step` apart, with as many digits as tell them apart. */
export function mark(value, step) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size === 0 && step < 1e-4) return "0";
  if (size !== 0 && (step < 1e-4 || size >= 1e7)) {
    const power = (number) => Math.floor(Math.log10(number) + 1e-9);
    const first = step / 10 ** power(step); // 2.5 has a digit more than 2
    const more = Math.abs(first - Math.round(first)) > 1e-6 ? 1 : 0;
    const text = value.toExponential(Math.max(0, Math.min(5, power(size) - power(step) + more)));
    return text.replace(/\.?0+e/, "e").replace("e+", "e");
  }
  let digits = 0;
  while (digits < 8 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6 * step * 10 ** digits) ++digits;
  return new Intl.NumberFormat("en", {minimumFractionDigits: digits, maximumFractionDigits: digits}).format(value);
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    ++unit;
  }
  return `${count < 10 && unit > 0 ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

/** "3 min ago" */
export function ago(milliseconds) {
  if (!milliseconds) return "–";
  const seconds = Math.max(0, (Date.now() - milliseconds) / 1000);
  if (seconds < 45) return t("justNow");
  const relative = new Intl.RelativeTimeFormat(locale(), {numeric: "auto", style: currentLanguage() === "en" ? "narrow" : "short"});
  if (seconds < 3600) return relative.format(-Math.round(seconds / 60), "minute");
  if (seconds < 86400) return relative.format(-Math.round(seconds / 3600), "hour");
  return relative.format(-Math.round(seconds / 86400), "day");
}

export function moment(milliseconds) {
  if (!milliseconds) return "–";
  return new Intl.DateTimeFormat(locale(), {dateStyle: "short", timeStyle: "medium"}).format(milliseconds);
}
