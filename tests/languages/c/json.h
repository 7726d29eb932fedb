/* As much JSON as the test node needs. A value stays the text that it came as: what is only passed on is never
   read, and so comes back with the digits that it was written with. Nothing is freed; the instance goes away. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "node.h"

/* A part of a text that somebody else owns. */
typedef node_string_t text_t;

text_t text(const char *words);
bool text_is(text_t one, const char *other);

/* The value of a member, or one without a pointer. */
text_t json_member(text_t object, const char *key);
bool json_is(text_t value, char first);
/* Each member of an object, each item of an array; `at` begins as 0. */
bool json_next_member(text_t object, size_t *at, text_t *key, text_t *value);
bool json_next_item(text_t array, size_t *at, text_t *item);
/* What a string says, without quotes and escapes. */
text_t json_string(text_t value);
unsigned long long json_number(text_t value);

/* A text in the making. */
typedef struct {
  char *ptr;
  size_t len, room;
} out_t;

void out_text(out_t *out, text_t part);
void out_words(out_t *out, const char *words);
/* As JSON: with quotes and escapes. */
void out_string(out_t *out, text_t string);
/* A comma, if something stands before. */
void out_comma(out_t *out);
text_t out_done(const out_t *out);

#endif
