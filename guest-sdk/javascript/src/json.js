// JSON in and out. Keys are sorted on the way out, so that an object gives the same bytes in every attempt,
// and what JSON would drop or change in silence is refused.

export function toText(value, what) {
  const seen = [];
  const write = (value, path) => {
    const refuse = (why) => {
      throw new TypeError(`${what} cannot be written as JSON: ${path === "" ? "" : `at ${path}: `}${why}`);
    };
    if (value !== null && typeof value?.toJSON === "function") value = value.toJSON();
    switch (typeof value) {
      case "string":
        return JSON.stringify(value);
      case "boolean":
        return String(value);
      case "number":
        if (!Number.isFinite(value)) refuse(`${value} is no JSON number`);
        return JSON.stringify(value);
      case "bigint":
        return value.toString();
      case "object":
        break;
      default:
        refuse(`${typeof value} is no JSON type`);
    }
    if (value === null) return "null";
    if (seen.includes(value)) refuse("it holds itself");
    if (value instanceof Map || value instanceof Set) {
      refuse(`a ${value.constructor.name} would be written as {}; write Object.fromEntries or [...it]`);
    }
    seen.push(value);
    const text = Array.isArray(value)
      ? `[${value.map((item, i) => write(item === undefined ? null : item, `${path}[${i}]`)).join(",")}]`
      : `{${Object.keys(value)
          .sort()
          .filter((key) => value[key] !== undefined)
          .map((key) => `${JSON.stringify(key)}:${write(value[key], path === "" ? key : `${path}.${key}`)}`)
          .join(",")}}`;
    seen.pop();
    return text;
  };
  return write(value, "");
}

/**
 * Whole numbers that a double cannot hold become BigInts, so that an id of 19 digits comes through; all
 * other numbers are numbers.
 */
export function fromText(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return new Reader(text).read();
}

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  read() {
    this.space();
    const { text } = this;
    switch (text[this.at]) {
      case "{": {
        const members = {};
        this.list("}", () => {
          const key = this.string();
          this.space();
          this.at += 1; // The colon: the host sends nothing but JSON.
          // Not by assignment, which would set the prototype.
          Object.defineProperty(members, key, { value: this.read(), enumerable: true, writable: true, configurable: true });
        });
        return members;
      }
      case "[": {
        const items = [];
        this.list("]", () => items.push(this.read()));
        return items;
      }
      case '"':
        return this.string();
      default: {
        const end = /[\s,\]}]|$/g;
        end.lastIndex = this.at;
        const word = text.slice(this.at, end.exec(text).index);
        this.at += word.length;
        if (/^-?\d+$/.test(word) && !Number.isSafeInteger(Number(word))) return BigInt(word);
        return JSON.parse(word);
      }
    }
  }

  list(close, item) {
    this.at += 1;
    this.space();
    if (this.text[this.at] === close) {
      this.at += 1;
      return;
    }
    do {
      this.space();
      item();
      this.space();
    } while (this.text[this.at++] === ",");
  }

  string() {
    const end = /"(?:[^"\\]|\\.)*"/y;
    end.lastIndex = this.at;
    const [word] = end.exec(this.text);
    this.at += word.length;
    return JSON.parse(word);
  }

  space() {
    while (/\s/.test(this.text[this.at] ?? "")) this.at += 1;
  }
}
