// JSON that loses no digit: what a person approves is what will run.

// A number that a double does not hold, or writes otherwise, as it was sent.
export class Exact {
  constructor(source) {
    this.source = source;
  }

  toJSON() {
    return JSON.rawJSON ? JSON.rawJSON(this.source) : Number(this.source);
  }
}

export function parse(text) {
  return JSON.parse(text, (_, value, context) => {
    const source = typeof value === "number" ? context?.source : undefined;
    return source !== undefined && String(value) !== source ? new Exact(source) : value;
  });
}

export const sourceOf = (value) => JSON.stringify(value, null, 2);

// The object that `text` is, or undefined.
export function objectOf(text) {
  try {
    const value = parse(text);
    return Object.getPrototypeOf(value) === Object.prototype ? value : undefined;
  } catch {
    return undefined;
  }
}

export function numeral(value) {
  const rounded = !JSON.rawJSON && Number.isInteger(value) && !Number.isSafeInteger(value);
  return rounded ? `\u2248 ${value} (this browser rounds large numbers)` : String(value);
}
