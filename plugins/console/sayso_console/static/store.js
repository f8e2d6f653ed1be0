// What the browser keeps for this service. Several services may share an origin, each below a path of
// its own. Where the browser keeps nothing, by its settings or for lack of room, the page goes on.

const base = new URL(".", document.baseURI).pathname;
const PREFIX = base === "/" ? "sayso." : `sayso:${base}:`;

export const nameOf = (key) => PREFIX + key;

class Store {
  constructor(kind) {
    this.unkept = new Map();
    try {
      this.kept = window[kind];
    } catch {
      // Forbidden.
    }
  }

  get(key) {
    if (this.unkept.has(key)) return this.unkept.get(key);
    return this.kept?.getItem(nameOf(key)) ?? null;
  }

  // False where it lasts no longer than this page.
  set(key, text) {
    try {
      this.kept.setItem(nameOf(key), text);
      this.unkept.delete(key);
      return true;
    } catch {
      this.unkept.set(key, text);
      return false;
    }
  }

  remove(key) {
    this.unkept.delete(key);
    this.kept?.removeItem(nameOf(key));
  }
}

export const ofTab = new Store("sessionStorage");
export const ofBrowser = new Store("localStorage");
