import type { Context, Handler } from "./index.js";

/** The second pass did not do what the first had done. */
export class Diverged extends Error {}

export interface Ran<Update> {
  /** What the function returned; meaningless while `paused`. */
  returned: Update;
  /** It waits for an answer that the script does not have. */
  paused: boolean;
  /** All questions, in the order asked: their payloads. */
  questions: any[];
  /** The same, with schema, expiry and default, as the host gets them: JSON texts. */
  asked: { payload: string; answerSchema: string | null; expiresAfterMs: number | null; defaultAnswer: string | null }[];
  /** All effects, in order, each once. */
  effects: { name: string; key: string; input: any }[];
  /** What it logged, without what a second pass would repeat. */
  logs: { level: string; message: string }[];
  /** What it showed to those who watch. */
  events: any[];
}

/** What people answer and what effects come to; an outcome may be an `EffectError`, which is then thrown. */
export class Script {
  constructor(options?: {
    answers?: unknown[];
    effects?: Record<string, unknown>;
    /** `after`: how many answers are there before it. */
    steering?: { after?: number; actor: string; text: string }[];
  });
  /** Runs the node as the host would: from its beginning, and once more after each answer. */
  run<Input, Update>(node: Handler<Input, Update>, input: Input, context?: Context): Ran<Update>;
  run<Input, Update>(node: (input: Input, context: Context) => Update, input: Input, context?: Context): Ran<Update>;
}
