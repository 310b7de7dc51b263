// Numbers of curves, before they are drawn.

/** As large as a chart can be: the difference of two numbers must be one. */
export const drawable = (value) => (value === null || value === undefined ? value : Math.max(-1e300, Math.min(1e300, value)));

/** Exponential moving average whose first values are not drawn to 0; gaps stay gaps. */
export function smoothed(values, weight) {
  let mean = 0, share = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    mean = weight * mean + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return mean / share;
  });
}

/** The epochs at those steps, between two records in proportion; without records the steps. */
export function epochsOf(epochs, steps) {
  if (!epochs || !epochs.x.length) return steps;
  let at = 0;
  return steps.map((step) => {
    while (at + 1 < epochs.x.length && epochs.x[at + 1] <= step) ++at;
    const [x0, y0] = [epochs.x[at], epochs.y[at]];
    const [x1, y1] = [epochs.x[at + 1], epochs.y[at + 1]];
    if (x1 === undefined || step <= x0) return y0 * (x0 ? step / x0 : 1);
    return y0 + ((y1 - y0) * (step - x0)) / (x1 - x0);
  });
}

/** The value at a place of a joined column, or the nearest one before it. */
export function valueAt(column, at) {
  for (let index = Math.min(at, column.length - 1); index >= 0; --index) {
    if (column[index] === null) return null;
    if (column[index] !== undefined) return column[index];
  }
  return null;
}
