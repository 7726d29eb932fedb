/* One node that does what a test tells it to, written against the bare contract: node.h is what wit-bindgen makes of
   wit/, and there is no SDK. Its program and its ops are those of `tests/guests/script`, as far as they make sense. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <wasi/api.h>

#include "json.h"

typedef holdpoint_node_interrupts_question_t question_t;
typedef holdpoint_node_types_option_json_t option_t;
typedef holdpoint_node_types_failure_t failure_t;
typedef holdpoint_node_types_route_t route_t;

enum { ROUTES_MAX = 16, QUESTIONS_MAX = 16 };

typedef struct {
  const exports_holdpoint_node_handler_context_t *context;
  text_t state;
  /* `1,"x"`: what ops gave, and `"a":1`: the members of the update. */
  out_t results, update;
  route_t routes[ROUTES_MAX];
  size_t routes_count;
  bool failed;
  holdpoint_node_types_node_error_t error;
} machine_t;

static void run(machine_t *machine, text_t ops);

static void give(machine_t *machine, text_t json) {
  out_comma(&machine->results);
  out_text(&machine->results, json);
}

/* A JSON list of what was given so far. */
static text_t results(const machine_t *machine) {
  out_t out = {0};
  out_words(&out, "[");
  out_text(&out, out_done(&machine->results));
  out_words(&out, "]");
  return out_done(&out);
}

static option_t option(text_t value) { return (option_t){value.ptr != NULL, value}; }

static question_t question(text_t payload, text_t op) {
  text_t expires = json_member(op, "expires_ms");
  return (question_t){
      .payload = payload,
      .answer_schema = {json_member(op, "schema").ptr != NULL, json_member(op, "schema")},
      .expires_after_ms = {expires.ptr != NULL, expires.ptr ? json_number(expires) : 0},
      .default_answer = {json_member(op, "default").ptr != NULL, json_member(op, "default")},
  };
}

static void ask(machine_t *machine, text_t payload, text_t op) {
  question_t asked = question(payload, op);
  text_t answer;
  holdpoint_node_interrupts_interrupt(&asked, &answer);
  give(machine, answer);
}

static void op_ask(machine_t *machine, text_t what, text_t op) { ask(machine, what, op); }

static void op_ask_results(machine_t *machine, text_t what, text_t op) {
  (void)what;
  ask(machine, results(machine), op);
}

static void op_ask_all(machine_t *machine, text_t what, text_t op) {
  question_t questions[QUESTIONS_MAX];
  holdpoint_node_interrupts_list_question_t all = {questions, 0};
  text_t payload;
  for (size_t at = 0; all.len < QUESTIONS_MAX && json_next_item(what, &at, &payload);)
    questions[all.len++] = question(payload, op);
  holdpoint_node_interrupts_list_json_t answers;
  holdpoint_node_interrupts_interrupt_all(&all, &answers);
  out_t out = {0};
  out_words(&out, "[");
  for (size_t i = 0; i < answers.len; i++) {
    out_comma(&out);
    out_text(&out, answers.ptr[i]);
  }
  out_words(&out, "]");
  give(machine, out_done(&out));
}

static void op_effect(machine_t *machine, text_t what, text_t op) {
  (void)op;
  static const char *const kinds[] = {"denied", "invalid", "key-conflict", "failed", "in-doubt"};
  text_t name = json_string(json_member(what, "name")), key = json_string(json_member(what, "key"));
  text_t input = json_member(what, "input"), outcome;
  holdpoint_node_effects_effect_error_t error;
  out_t out = {0};
  if (holdpoint_node_effects_perform(&name, &key, &input, &outcome, &error)) {
    out_words(&out, "{\"ok\":");
    out_text(&out, outcome);
  } else {
    out_words(&out, "{\"err\":{\"kind\":");
    out_string(&out, text(kinds[error.tag]));
    if (error.tag == HOLDPOINT_NODE_EFFECTS_EFFECT_ERROR_FAILED) {
      out_words(&out, ",\"value\":");
      out_text(&out, error.val.failed);
    }
    out_words(&out, "}");
  }
  out_words(&out, "}");
  give(machine, out_done(&out));
}

static void op_steering(machine_t *machine, text_t what, text_t op) {
  (void)what, (void)op;
  holdpoint_node_steering_list_instruction_t all;
  holdpoint_node_steering_instructions(&all);
  out_t out = {0};
  out_words(&out, "[");
  for (size_t i = 0; i < all.len; i++) {
    out_comma(&out);
    out_words(&out, "{\"actor\":");
    out_string(&out, all.ptr[i].actor);
    out_words(&out, ",\"text\":");
    out_string(&out, all.ptr[i].text);
    out_words(&out, "}");
  }
  out_words(&out, "]");
  give(machine, out_done(&out));
}

static void op_log(machine_t *machine, text_t what, text_t op) {
  (void)machine, (void)op;
  static const char *const levels[] = {"trace", "debug", "info", "warn", "error"};
  text_t level = json_string(json_member(what, "level")), message = json_string(json_member(what, "message"));
  for (uint8_t i = 0; i < sizeof levels / sizeof *levels; i++)
    if (text_is(level, levels[i])) holdpoint_node_log_write(i, &message);
}

static void op_emit(machine_t *machine, text_t what, text_t op) {
  (void)machine, (void)op;
  holdpoint_node_events_emit(&what);
}

static void print(FILE *to, text_t what) {
  text_t words = json_string(what);
  fwrite(words.ptr, 1, words.len, to);
  fputc('\n', to);
  fflush(to);
}

static void op_print(machine_t *machine, text_t what, text_t op) {
  (void)machine, (void)op;
  print(stdout, what);
}

static void op_eprint(machine_t *machine, text_t what, text_t op) {
  (void)machine, (void)op;
  print(stderr, what);
}

static void op_now(machine_t *machine, text_t what, text_t op) {
  (void)what, (void)op;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  char digits[32];
  snprintf(digits, sizeof digits, "%lld", (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000);
  out_comma(&machine->results);
  out_words(&machine->results, digits);
}

static void op_sleep_ms(machine_t *machine, text_t what, text_t op) {
  (void)machine, (void)op;
  unsigned long long ms = json_number(what);
  nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void op_random(machine_t *machine, text_t what, text_t op) {
  (void)op;
  uint8_t bytes[256];
  size_t count = json_number(what) % sizeof bytes;
  char hex[2 * sizeof bytes + 1] = {0};
  if (getentropy(bytes, count) != 0) abort();
  for (size_t i = 0; i < count; i++) snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
  out_comma(&machine->results);
  out_string(&machine->results, text(hex));
}

/* C has no hash map whose order could differ; where things lie in memory could. */
static void op_hash_order(machine_t *machine, text_t what, text_t op) {
  (void)what, (void)op;
  char address[32];
  snprintf(address, sizeof address, "%p", malloc(100));
  out_comma(&machine->results);
  out_string(&machine->results, text(address));
}

static void op_context(machine_t *machine, text_t what, text_t op) {
  (void)what, (void)op;
  const exports_holdpoint_node_handler_context_t *context = machine->context;
  out_t out = {0};
  char step[32];
  snprintf(step, sizeof step, "%u", (unsigned)context->step);
  out_words(&out, "{\"thread_id\":");
  out_string(&out, context->thread_id);
  out_words(&out, ",\"run_id\":");
  out_string(&out, context->run_id);
  out_words(&out, ",\"task_id\":");
  out_string(&out, context->task_id);
  out_words(&out, ",\"node\":");
  out_string(&out, context->node);
  out_words(&out, ",\"step\":");
  out_words(&out, step);
  out_words(&out, ",\"arg\":");
  out_text(&out, context->arg.is_some ? context->arg.val : text("null"));
  out_words(&out, ",\"path\":[");
  for (size_t i = 0; i < context->path.len; i++) {
    out_comma(&out);
    out_string(&out, context->path.ptr[i]);
  }
  out_words(&out, "]}");
  give(machine, out_done(&out));
}

static void op_value(machine_t *machine, text_t what, text_t op) {
  (void)op;
  give(machine, what);
}

extern char **environ;

static void op_env(machine_t *machine, text_t what, text_t op) {
  (void)what, (void)op;
  out_t out = {0};
  out_words(&out, "{");
  for (char **variable = environ; variable && *variable; variable++) {
    out_comma(&out);
    out_string(&out, text(*variable));
    out_words(&out, ":null");
  }
  out_words(&out, "}");
  give(machine, out_done(&out));
}

static void op_args(machine_t *machine, text_t what, text_t op) {
  (void)what, (void)op;
  __wasi_size_t count = 0, bytes = 0;
  if (__wasi_args_sizes_get(&count, &bytes) != 0) abort();
  give(machine, count == 0 ? text("[]") : text("[\"some\"]"));
}

static void read_all(machine_t *machine, FILE *file) {
  out_t read = {0}, out = {0};
  uint8_t part[512];
  for (size_t len; (len = fread(part, 1, sizeof part, file)) > 0;) out_text(&read, (text_t){part, len});
  out_words(&out, "{\"ok\":");
  out_string(&out, out_done(&read));
  out_words(&out, "}");
  give(machine, out_done(&out));
}

static void op_stdin(machine_t *machine, text_t what, text_t op) {
  (void)what, (void)op;
  read_all(machine, stdin);
}

static void op_open(machine_t *machine, text_t what, text_t op) {
  (void)op;
  text_t path = json_string(what);
  char name[256] = {0};
  memcpy(name, path.ptr, path.len < sizeof name ? path.len : sizeof name - 1);
  FILE *file = fopen(name, "r");
  if (file) read_all(machine, file);
  else give(machine, text("{\"err\":\"it cannot be opened\"}"));
}

static void op_put(machine_t *machine, text_t what, text_t op) {
  (void)op;
  text_t key, value;
  for (size_t at = 0; json_next_member(what, &at, &key, &value);) {
    out_comma(&machine->update);
    out_text(&machine->update, key);
    out_words(&machine->update, ":");
    out_text(&machine->update, value);
  }
}

static void op_put_results(machine_t *machine, text_t what, text_t op) {
  (void)op;
  out_comma(&machine->update);
  out_text(&machine->update, what);
  out_words(&machine->update, ":");
  out_text(&machine->update, results(machine));
}

/* What is handed back is freed by the bindings, and so has to be of its own. */
static text_t own(text_t part) {
  text_t copy;
  node_string_dup_n(&copy, (const char *)part.ptr, part.len);
  return copy;
}

static void route(machine_t *machine, route_t to) {
  if (machine->routes_count < ROUTES_MAX) machine->routes[machine->routes_count++] = to;
}

static void op_go(machine_t *machine, text_t what, text_t op) {
  (void)op;
  route(machine, (route_t){.tag = HOLDPOINT_NODE_TYPES_ROUTE_GO, .val.go = own(json_string(what))});
}

static void op_send(machine_t *machine, text_t what, text_t op) {
  (void)op;
  holdpoint_node_types_send_t send = {
      .label = own(json_string(json_member(what, "label"))),
      .arg = own(json_member(what, "arg")),
  };
  route(machine, (route_t){.tag = HOLDPOINT_NODE_TYPES_ROUTE_SEND, .val.send = send});
}

static void op_end(machine_t *machine, text_t what, text_t op) {
  (void)what, (void)op;
  route(machine, (route_t){.tag = HOLDPOINT_NODE_TYPES_ROUTE_END});
}

static failure_t failure(text_t what) {
  if (!json_is(what, '{')) return (failure_t){.message = own(json_string(what))};
  option_t detail = option(json_member(what, "detail"));
  if (detail.is_some) detail.val = own(detail.val);
  return (failure_t){.message = own(json_string(json_member(what, "message"))), .detail = detail};
}

static void op_fail(machine_t *machine, text_t what, text_t op) {
  (void)op;
  machine->failed = true;
  machine->error.tag = HOLDPOINT_NODE_TYPES_NODE_ERROR_FAIL;
  machine->error.val.fail = failure(what);
}

static void op_retry(machine_t *machine, text_t what, text_t op) {
  (void)op;
  machine->failed = true;
  machine->error.tag = HOLDPOINT_NODE_TYPES_NODE_ERROR_RETRY;
  machine->error.val.retry = failure(what);
}

/* C has nothing that could catch the stop but what runs when a program ends. */
static void left(void) {
  static const char words[] = "unwound";
  text_t message = text(words);
  holdpoint_node_log_write(HOLDPOINT_NODE_LOG_LEVEL_ERROR, &message);
}

static void op_catch(machine_t *machine, text_t what, text_t op) {
  (void)op;
  atexit(left);
  run(machine, what);
  give(machine, text("\"finished\""));
}

static void op_panic(machine_t *machine, text_t what, text_t op) {
  (void)machine, (void)op;
  print(stderr, what);
  abort();
}

static volatile unsigned depth;

static unsigned deeper(unsigned (*again)(void)) {
  depth++;
  return again() + depth;
}

static unsigned recurse(void) { return deeper(recurse) + 1; }

static void op_recurse(machine_t *machine, text_t what, text_t op) {
  (void)machine, (void)what, (void)op;
  depth = recurse();
}

static void op_loop(machine_t *machine, text_t what, text_t op) {
  (void)machine, (void)what, (void)op;
  for (;;) depth++;
}

static const struct {
  const char *verb;
  void (*op)(machine_t *machine, text_t what, text_t op);
} OPS[] = {
    {"ask", op_ask},         {"ask_results", op_ask_results}, {"ask_all", op_ask_all},
    {"effect", op_effect},   {"steering", op_steering},       {"log", op_log},
    {"emit", op_emit},       {"print", op_print},             {"eprint", op_eprint},
    {"now", op_now},         {"sleep_ms", op_sleep_ms},       {"random", op_random},
    {"hash_order", op_hash_order}, {"context", op_context},   {"value", op_value},
    {"env", op_env},         {"args", op_args},               {"stdin", op_stdin},
    {"open", op_open},       {"put", op_put},                 {"put_results", op_put_results},
    {"go", op_go},           {"send", op_send},               {"end", op_end},
    {"fail", op_fail},       {"retry", op_retry},             {"catch", op_catch},
    {"panic", op_panic},     {"recurse", op_recurse},         {"loop", op_loop},
};

static void run(machine_t *machine, text_t ops) {
  text_t op;
  if (!ops.ptr) op_fail(machine, text("\"script: no program\""), ops);
  for (size_t at = 0; !machine->failed && json_next_item(ops, &at, &op);) {
    bool known = false;
    for (size_t i = 0; !known && i < sizeof OPS / sizeof *OPS; i++) {
      text_t what = json_member(op, OPS[i].verb);
      if ((known = what.ptr != NULL)) OPS[i].op(machine, what, op);
    }
    if (!known) op_fail(machine, text("\"script: unknown verb\""), op);
  }
}

static text_t program(const machine_t *machine) {
  const exports_holdpoint_node_handler_context_t *context = machine->context;
  text_t script = context->arg.is_some ? json_member(context->arg.val, "script") : (text_t){NULL, 0};
  if (json_is(script, '[')) return script;
  script = json_member(machine->state, "script");
  if (json_is(script, '[')) return script;
  out_t node = {0};
  out_text(&node, context->node);
  out_text(&node, (text_t){(uint8_t *)"", 1});
  return json_member(script, node.ptr);
}

bool exports_holdpoint_node_handler_run(exports_holdpoint_node_handler_context_t *context,
                                        exports_holdpoint_node_handler_json_t *state,
                                        exports_holdpoint_node_handler_outcome_t *ret,
                                        exports_holdpoint_node_handler_node_error_t *err) {
  machine_t machine = {.context = context, .state = *state};
  run(&machine, program(&machine));
  if (machine.failed) {
    *err = machine.error;
    return false;
  }
  out_t update = {0};
  out_words(&update, "{");
  out_text(&update, out_done(&machine.update));
  out_words(&update, "}");
  ret->update = out_done(&update);
  ret->routes.len = machine.routes_count;
  ret->routes.ptr = calloc(machine.routes_count + 1, sizeof(route_t));
  if (!ret->routes.ptr) abort();
  memcpy(ret->routes.ptr, machine.routes, machine.routes_count * sizeof(route_t));
  return true;
}

static node_list_string_t names(const char *const *list, size_t count) {
  node_list_string_t names = {calloc(count, sizeof(node_string_t)), count};
  if (!names.ptr) abort();
  for (size_t i = 0; i < count; i++) node_string_dup(&names.ptr[i], list[i]);
  return names;
}

#define NAMES(...) \
  names((const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

void exports_holdpoint_node_handler_describe(exports_holdpoint_node_handler_node_info_t *ret) {
  node_string_dup(&ret->name, "script");
  node_string_dup(&ret->version, "0.1.0");
  ret->reads = NAMES("script", "a", "b", "c", "d");
  ret->writes = NAMES("a", "b", "c", "d");
  ret->routes = NAMES("w", "x", "y", "z");
  ret->effects = NAMES("e", "f");
}
