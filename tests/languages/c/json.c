#include "json.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

text_t text(const char *words) { return (text_t){(uint8_t *)words, strlen(words)}; }

bool text_is(text_t one, const char *other) {
  return one.len == strlen(other) && memcmp(one.ptr, other, one.len) == 0;
}

static size_t space(text_t json, size_t at) {
  while (at < json.len && strchr(" \t\r\n", json.ptr[at])) at++;
  return at;
}

/* The end of the value that begins at `at`. The host has checked that it is JSON. */
static size_t value_end(text_t json, size_t at) {
  size_t depth = 0;
  bool quoted = false;
  for (; at < json.len; at++) {
    uint8_t c = json.ptr[at];
    if (quoted) {
      if (c == '\\') at++;
      else if (c == '"') {
        quoted = false;
        if (depth == 0) return at + 1;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      depth++;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;
      if (--depth == 0) return at + 1;
    } else if (depth == 0 && strchr(",: \t\r\n", c)) {
      return at;
    }
  }
  return at;
}

static bool next(text_t json, size_t *at, text_t *value) {
  size_t from = space(json, *at);
  if (from < json.len && strchr(",:", json.ptr[from])) from = space(json, from + 1);
  if (from >= json.len || json.ptr[from] == '}' || json.ptr[from] == ']') return false;
  size_t end = value_end(json, from);
  *value = (text_t){json.ptr + from, end - from};
  *at = space(json, end);
  return true;
}

/* The first call has to go into the object or array, and not over it. */
static size_t inside(text_t json, size_t at) { return at > 0 ? at : space(json, 0) + 1; }

bool json_next_item(text_t array, size_t *at, text_t *item) {
  *at = inside(array, *at);
  return next(array, at, item);
}

bool json_next_member(text_t object, size_t *at, text_t *key, text_t *value) {
  *at = inside(object, *at);
  return next(object, at, key) && next(object, at, value);
}

text_t json_member(text_t object, const char *key) {
  text_t name, value;
  if (json_is(object, '{'))
    for (size_t at = 0; json_next_member(object, &at, &name, &value);)
      if (text_is(json_string(name), key)) return value;
  return (text_t){NULL, 0};
}

bool json_is(text_t value, char first) {
  size_t at = space(value, 0);
  return value.ptr && at < value.len && value.ptr[at] == (uint8_t)first;
}

static unsigned hex4(const uint8_t *digits) {
  char copy[5] = {digits[0], digits[1], digits[2], digits[3], 0};
  return strtoul(copy, NULL, 16);
}

static void out_code_point(out_t *out, unsigned c) {
  uint8_t utf8[4];
  size_t len = 0;
  if (c < 0x80) {
    utf8[len++] = c;
  } else if (c < 0x800) {
    utf8[len++] = 0xc0 | c >> 6;
    utf8[len++] = 0x80 | (c & 0x3f);
  } else if (c < 0x10000) {
    utf8[len++] = 0xe0 | c >> 12;
    utf8[len++] = 0x80 | (c >> 6 & 0x3f);
    utf8[len++] = 0x80 | (c & 0x3f);
  } else {
    utf8[len++] = 0xf0 | c >> 18;
    utf8[len++] = 0x80 | (c >> 12 & 0x3f);
    utf8[len++] = 0x80 | (c >> 6 & 0x3f);
    utf8[len++] = 0x80 | (c & 0x3f);
  }
  out_text(out, (text_t){utf8, len});
}

text_t json_string(text_t value) {
  out_t out = {0};
  if (!json_is(value, '"')) return value;
  for (size_t at = space(value, 0) + 1; at < value.len && value.ptr[at] != '"'; at++) {
    if (value.ptr[at] != '\\') {
      out_text(&out, (text_t){value.ptr + at, 1});
      continue;
    }
    static const char escapes[] = "b\bf\fn\nr\rt\t";
    uint8_t c = value.ptr[++at];
    const char *known = memchr(escapes, c, sizeof escapes - 1);
    if (c == 'u') {
      unsigned point = hex4(value.ptr + at + 1);
      at += 4;
      if (point >= 0xd800 && point < 0xdc00) {
        point = 0x10000 + ((point - 0xd800) << 10) + (hex4(value.ptr + at + 3) - 0xdc00);
        at += 6;
      }
      out_code_point(&out, point);
    } else if (known) {
      out_text(&out, (text_t){(uint8_t *)known + 1, 1});
    } else {
      out_text(&out, (text_t){value.ptr + at, 1});
    }
  }
  return out_done(&out);
}

unsigned long long json_number(text_t value) {
  char copy[32] = {0};
  memcpy(copy, value.ptr, value.len < sizeof copy ? value.len : sizeof copy - 1);
  return strtoull(copy, NULL, 10);
}

void out_text(out_t *out, text_t part) {
  if (out->len + part.len > out->room) {
    out->room = 2 * (out->len + part.len) + 64;
    out->ptr = realloc(out->ptr, out->room);
    if (!out->ptr) abort();
  }
  memcpy(out->ptr + out->len, part.ptr, part.len);
  out->len += part.len;
}

void out_words(out_t *out, const char *words) { out_text(out, text(words)); }

void out_string(out_t *out, text_t string) {
  out_words(out, "\"");
  for (size_t at = 0; at < string.len; at++) {
    uint8_t c = string.ptr[at];
    char escaped[8];
    if (c == '"' || c == '\\') snprintf(escaped, sizeof escaped, "\\%c", c);
    else if (c < 0x20) snprintf(escaped, sizeof escaped, "\\u%04x", c);
    else snprintf(escaped, sizeof escaped, "%c", c);
    out_words(out, escaped);
  }
  out_words(out, "\"");
}

void out_comma(out_t *out) {
  if (out->len > 0 && out->ptr[out->len - 1] != '[' && out->ptr[out->len - 1] != '{') out_words(out, ",");
}

text_t out_done(const out_t *out) { return (text_t){(uint8_t *)out->ptr, out->len}; }
