// Whether a scripted answer is one that its question takes.
//
// A node is tested with few packages, so this knows the common words of JSON Schema and no more; the host checks all
// of them, when the node runs for real.

import { toText } from "./json.js";

/** References lead into the schema, and may lead back. */
const DEPTH_MAX = 64;

/** Where the answer is another than the schema says, and what is expected there; or undefined. */
export function mismatch(schema, answer) {
  return check(schema, schema, answer, "", 0);
}

function check(root, schema, value, place, depth) {
  const wrong = (expected) => `at ${place || "/"}: expected ${expected}, and it is ${text(value)}`;
  const below = (part, inner, at = place) => check(root, part, inner, at, depth + 1);
  if (schema === false) return wrong("nothing");
  if (typeof schema !== "object" || schema === null || depth === DEPTH_MAX) return undefined;
  const has = (key) => Object.hasOwn(schema, key);
  const list = (key) => (Array.isArray(schema[key]) ? schema[key] : []);
  let why;
  if (has("$ref") && (why = below(referred(root, schema.$ref), value))) return why;
  if (has("const") && text(schema.const) !== text(value)) return wrong(text(schema.const));
  if (has("enum") && !list("enum").some((one) => text(one) === text(value))) {
    return wrong(`one of ${list("enum").map(text).join(", ")}`);
  }
  const kinds = typeof schema.type === "string" ? [schema.type] : list("type");
  if (kinds.length > 0 && !kinds.some((kind) => isOf(kind, value))) return wrong(kinds.join(" or "));
  for (const part of list("allOf")) if ((why = below(part, value))) return why;
  for (const key of ["anyOf", "oneOf"].filter(has)) {
    const reasons = list(key).map((part) => below(part, value));
    const fits = reasons.filter((reason) => reason === undefined).length;
    if (fits === 0 || (key === "oneOf" && fits > 1)) {
      return wrong(`one of the ${reasons.length} in ${key} (${reasons.map((reason) => reason ?? "fits").join("; ")})`);
    }
  }
  if (has("not") && below(schema.not, value) === undefined) return wrong(`anything but ${text(schema.not)}`);
  if (isOf("number", value)) {
    for (const [key, fits, words] of [
      ["minimum", (bound) => value >= bound, "at least"],
      ["exclusiveMinimum", (bound) => value > bound, "more than"],
      ["maximum", (bound) => value <= bound, "at most"],
      ["exclusiveMaximum", (bound) => value < bound, "less than"],
      ["multipleOf", (bound) => (Number(value) / Number(bound)) % 1 === 0, "a multiple of"],
    ]) {
      if (has(key) && !fits(schema[key])) return wrong(`${words} ${schema[key]}`);
    }
  }
  const count = typeof value === "string" ? [...value].length : Array.isArray(value) ? value.length : undefined;
  if (count !== undefined) {
    const [least, most, what] =
      typeof value === "string" ? ["minLength", "maxLength", "characters"] : ["minItems", "maxItems", "items"];
    if (count < (schema[least] ?? 0)) return wrong(`at least ${schema[least]} ${what}`);
    if (count > (schema[most] ?? Infinity)) return wrong(`at most ${schema[most]} ${what}`);
  }
  if (Array.isArray(value)) {
    const first = list("prefixItems");
    for (const [i, item] of value.entries()) {
      if ((why = below(i < first.length ? first[i] : schema.items, item, `${place}/${i}`))) return why;
    }
  } else if (isOf("object", value)) {
    const missing = list("required").find((name) => !Object.hasOwn(value, name));
    if (missing !== undefined) return wrong(`an object with \`${missing}\``);
    // Which names a pattern takes is not known here.
    const others = has("patternProperties") ? undefined : schema.additionalProperties;
    for (const [name, member] of Object.entries(value)) {
      const part = Object.hasOwn(schema.properties ?? {}, name) ? schema.properties[name] : others;
      if ((why = below(part, member, `${place}/${name}`))) return why;
    }
  }
  return undefined;
}

const text = (value) => toText(value, "a value");

function referred(root, to) {
  if (!to.startsWith("#")) return undefined;
  const names = to.slice(1).split("/").slice(1);
  return names.reduce((at, name) => at?.[name.replaceAll("~1", "/").replaceAll("~0", "~")], root);
}

function isOf(kind, value) {
  switch (kind) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "integer":
      return typeof value === "bigint" || Number.isInteger(value);
    case "number":
      return typeof value === "bigint" || typeof value === "number";
    case "boolean":
    case "string":
      return typeof value === kind;
    default:
      return true;
  }
}
