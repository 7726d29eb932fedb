/** What JSON can say. Whole numbers beyond 2^53 come and go as `bigint`. */
export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json };

/** Where and why a node runs: the same in every attempt of one task. */
export interface Context {
  /** The thread's name, as the caller chose it. */
  readonly threadId: string;
  /** The run that this task belongs to. */
  readonly runId: string;
  /** This activation of the node: the same across retries and resumes, so a good idempotency key. */
  readonly taskId: string;
  /** The node's name in the graph. */
  readonly node: string;
  /** The subgraph nodes that lead here from the root; empty in the root graph. */
  readonly path: readonly string[];
  /** The step of the run, from 0. */
  readonly step: number;
  /** The argument of the `send` that started this task, or null. */
  readonly arg: any;
}

/** What a node needs from the graph that uses it, in the node's own names. */
export interface Declared {
  /** The package's, if left out. */
  name?: string;
  /** The package's, if left out. */
  version?: string;
  /** The keys of the input. */
  reads?: string[];
  /** The keys of what it returns. */
  writes?: string[];
  /** The labels that it passes to `go` and `send`. */
  routes?: string[];
  /** The names that it passes to `effect`. */
  effects?: string[];
}

/** What a component exports as `handler`. */
export interface Handler<Input, Update> {
  describe(): unknown;
  run(context: unknown, state: string): unknown;
  /** The function as it was written, for tests. */
  call(input: Input, context: Context): Update | Outcome<Update> | void;
}

/** Makes a function the node of this component: `export const handler = node({ … }, function … )`. */
export function node<Input = any, Update = any>(
  declared: Declared,
  run: (input: Input, context: Context) => Update | Outcome<Update> | void,
): Handler<Input, Update>;

export interface QuestionOptions {
  /** The JSON Schema that an answer must meet; checked before anything is written down. */
  schema?: unknown;
  /** How long the question stands, in milliseconds from when it was asked. */
  expiresAfterMs?: number;
  /** What counts as the answer once it has expired; without it, the task fails as expired. */
  defaultAnswer?: unknown;
}

/** What to ask, and what counts as an answer. */
export class Question {
  constructor(payload: unknown, options?: QuestionOptions);
}

/** Ask a person, and stop here until there is an answer. On the pass that asks, this does not return. */
export function interrupt<Answer = any>(question: unknown): Answer;

/** Ask several questions at once; the answers come in the order of the questions. */
export function interruptAll<Answer = any>(questions: Iterable<unknown>): Answer[];

export type EffectErrorKind = "denied" | "invalid" | "key-conflict" | "failed" | "in-doubt";

/** Have the host do `name` with `input`, once for each `key`. */
export function effect<Outcome = any>(name: string, key: string, input?: unknown): Outcome;

/** What ends a node short of an outcome. Throw a `Retry` or a `Fail`, not this. */
export class NodeError extends Error {
  constructor(message: unknown, detail?: unknown);
  detail: unknown;
}

/** Worth another attempt. Answers and effects that succeeded stay; the node runs from its beginning. */
export class Retry extends NodeError {}

/** Another attempt would fail in the same way. */
export class Fail extends NodeError {}

/** Why an effect was not done, or is not known to be done. Not caught, it fails the node for good. */
export class EffectError extends Fail {
  constructor(kind: EffectErrorKind, message: string, outcome?: unknown);
  kind: EffectErrorKind;
  /** Of `failed`: what is known of it. */
  outcome: any;
}

/** What a node hands back when it is done: what it writes, and where to go next. */
export class Outcome<Update = any> {
  constructor(update?: Update);
  /** Go to the node behind this label, one of the node's `routes`. */
  go(label: string): this;
  /** Start a task of its own behind this label, with an argument. */
  send(label: string, arg: unknown): this;
  /** Go nowhere from here, whatever edges the graph draws. */
  end(): this;
}

export interface Action {
  action: string;
  args: Record<string, any>;
}

export type Decision =
  | { type: "accept"; action: Action }
  | { type: "edit"; action: Action }
  | { type: "response"; text: string }
  | { type: "ignore" };

export interface ApprovalOptions {
  description?: string | null;
  /** Whether it may be accepted as it is; true, if left out. */
  accept?: boolean;
  /** Whether the person may change it. */
  edit?: boolean;
  /** Whether the person may answer in words. */
  respond?: boolean;
  /** Whether it may be ignored; true, if left out. */
  ignore?: boolean;
}

/** An action for a person to approve, in the form that inboxes know how to show. */
export class Approval {
  constructor(action: string, args: Record<string, unknown>, options?: ApprovalOptions);
  /** The same as a question, to add an expiry or to ask it beside others. */
  question(more?: Omit<QuestionOptions, "schema">): Question;
  /** What an answer to the question means. */
  read(answer: any): Decision;
}

/** Ask a person to approve, and stop here until they have said. */
export function approve(approval: Approval): Decision;

export namespace log {
  function trace(message: unknown): void;
  function debug(message: unknown): void;
  function info(message: unknown): void;
  function warn(message: unknown): void;
  function error(message: unknown): void;
}

export namespace events {
  /** Show a value to whoever watches; it is not state, and a resumed run does not repeat it. */
  function emit(event: unknown): void;
}

export namespace steering {
  interface Instruction {
    /** Who gave it, as far as the host knows. */
    actor: string;
    text: string;
  }
  /** All instructions for this task so far, oldest first. */
  function instructions(): Instruction[];
}
